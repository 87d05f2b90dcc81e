//! The first bytes on a data connection, from whoever found the port.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::tcp::proof::{HELLO_BYTES, Hello};

fuzz_target!(|bytes: [u8; HELLO_BYTES]| {
    if let Ok(hello) = Hello::decode(&bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
});
