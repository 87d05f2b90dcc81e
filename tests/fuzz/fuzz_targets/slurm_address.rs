//! Slurm's two variables for a task's place in the topology.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_topology::discover::files::slurm;

fuzz_target!(|variables: (&str, &str)| {
    let (address, pattern) = variables;
    if let Some((path, node)) = slurm::address(address, pattern) {
        let kinds = pattern.split('.').count();
        assert_eq!(path.groups.len() + 1, kinds);
        assert!(address.ends_with(node));
        assert!(address.starts_with(&path.groups.join(".")));
    }
});
