//! An authenticated peer's messages: about memory and queue pairs, and ready-to-receive ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::rdma::decode::{INVITATION_BYTES, MESSAGE_BYTES, invitation, message};

fuzz_target!(|input: ([u8; MESSAGE_BYTES], [u8; INVITATION_BYTES], u64)| {
    let (bytes, line, at) = input;
    message(bytes).expect("there is memory");
    let _ = invitation(&line, at);
});
