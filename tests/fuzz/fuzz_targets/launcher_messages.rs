//! What comes out of the shell on another host, where a keeper should be.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ringfold_launcher::decode_anything(bytes));
