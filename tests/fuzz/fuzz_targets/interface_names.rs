//! `RINGFOLD_SOCKET_IFNAME` as a filter of interfaces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::interface::Filter;

fuzz_target!(|text: &str| {
    assert_eq!(Filter::from(text), Filter::from(text));
});
