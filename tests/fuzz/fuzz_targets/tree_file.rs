//! The tree file of aggregators, and the places of members below them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_innetwork::trees::Trees;

/// The first line of a file.
const START: &str = "ringfold-aggregators 1\n";

fuzz_target!(|rest: &str| {
    if let Ok(trees) = Trees::parse("fuzz", &format!("{START}{rest}")) {
        assert_eq!(Trees::parse("fuzz", &trees.write()).unwrap(), trees);
        let hosts: Vec<&str> = vec!["a", "b", "a", "c"];
        for tree in trees.place(&hosts).trees {
            let members = tree.fold(&|_| 1, &|counts: Vec<usize>| counts.into_iter().sum());
            assert_eq!(members, hosts.len());
        }
    }
});
