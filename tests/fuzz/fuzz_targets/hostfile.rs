//! The user's list of hosts, as a file and on the command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_launcher::{parse_file, parse_list};

fuzz_target!(|text: &str| {
    for host in [parse_file(text), parse_list(text)].into_iter().flatten().flatten() {
        // An agent gets the name as an argument.
        assert!(host.slots >= 1 && host.name.split('@').all(|part| !part.starts_with('-')));
    }
});
