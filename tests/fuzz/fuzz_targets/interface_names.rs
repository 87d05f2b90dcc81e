//! `RINGFOLD_SOCKET_IFNAME` as a filter of interfaces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::interface::Filter;

fuzz_target!(|text: &str| {
    let Ok(filter) = text.parse::<Filter>();
    assert_eq!(text.parse::<Filter>(), Ok(filter));
});
