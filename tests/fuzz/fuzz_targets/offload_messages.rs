//! An aggregator's or a child's header, and the ticket of member 0.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::offload::header::{HEADER_BYTES, Header};
use ringfold_transport::offload::ticket::Grant;

fuzz_target!(|input: ([u8; HEADER_BYTES], &[u8])| {
    let (head, rest) = input;
    if let Ok(header) = Header::decode(&head) {
        assert_eq!(header.encode(), head);
    }
    if let Ok(grant) = Grant::decode(rest) {
        assert_eq!(Grant::decode(&grant.encode()).expect("a ticket"), grant);
    }
});
