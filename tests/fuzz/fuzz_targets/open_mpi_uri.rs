//! The address of `mpirun` from Open MPI.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::addresses;

/// The most addresses of one host that ranks try.
const ADDRESSES: usize = 16;

fuzz_target!(|uri: &str| {
    let found = addresses(uri);
    assert!(found.len() <= ADDRESSES);
    assert!(found.iter().all(|address| !address.is_loopback()));
});
