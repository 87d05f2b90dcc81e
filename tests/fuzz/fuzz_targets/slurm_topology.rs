//! Slurm's `topology.conf`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_topology::discover::files::{Read, read};

/// The beginning that selects this format.
const START: &[u8] = b"SwitchName=";

fuzz_target!(|rest: &[u8]| {
    let bytes = [START, rest].concat();
    if let Ok(Read::Slurm(hosts)) = read("fuzz", &bytes) {
        assert!(!hosts.is_empty());
        assert!(hosts.values().all(|path| !path.groups.is_empty()));
    }
});
