//! Bytes that a peer's device writes into a ring, and their immediates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::rdma::decode::take_all;

fuzz_target!(|input: (Vec<u32>, u16, &[u8])| {
    let (numbers, step, ring) = input;
    take_all(ring, &numbers, usize::from(step)).expect("there is memory");
});
