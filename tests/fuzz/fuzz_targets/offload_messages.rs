//! An aggregator's or a child's header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_innetwork::wire::header::{HEADER_BYTES, Header};

fuzz_target!(|head: [u8; HEADER_BYTES]| {
    if let Ok(header) = Header::decode(&head) {
        assert_eq!(header.encode(), head);
    }
});
