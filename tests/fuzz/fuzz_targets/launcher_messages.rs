//! The output of the shell on another host, in place of a node agent's messages.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ringfold_launcher::decode_anything(bytes));
