//! The user's list of hosts, as a file and on the command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_launcher::{parse_file, parse_list};

fuzz_target!(|text: &str| {
    drop((parse_file(text), parse_list(text)));
});
