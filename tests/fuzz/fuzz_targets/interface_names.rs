//! `RINGFOLD_SOCKET_IFNAME`, and what is chosen by it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::interface::Filter;

fuzz_target!(|text: &str| {
    let Ok(filter) = text.parse::<Filter>();
    assert_eq!(text.parse::<Filter>(), Ok(filter));
});
