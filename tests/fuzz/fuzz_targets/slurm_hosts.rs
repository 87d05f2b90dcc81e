//! Slurm's list of hosts, as in `node[01-16,20],login`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_types::expand_hosts;
use ringfold_types::limits::RANKS_MAX;

fuzz_target!(|list: &str| {
    if let Ok(hosts) = expand_hosts(list, RANKS_MAX) {
        assert!(hosts.len() <= RANKS_MAX);
    }
});
