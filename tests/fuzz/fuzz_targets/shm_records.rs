//! The published address of another process of the host, and the ring that it fills.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::shm::decode::{is_address, take_all};

fuzz_target!(|input: (&str, u16, &[u8])| {
    let (text, step, bytes) = input;
    let _ = is_address(text);
    take_all(bytes, usize::from(step)).expect("there is memory");
});
