//! The first bytes of an unauthenticated peer on a connection between ranks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::decode_hello;

fuzz_target!(|bytes: &[u8]| {
    if let Some(again) = decode_hello(bytes) {
        assert_eq!(again, bytes);
    }
});
