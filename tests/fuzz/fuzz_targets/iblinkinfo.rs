//! The output of `iblinkinfo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|rest: &[u8]| ringfold_fuzz::fabric("CA: ", rest));
