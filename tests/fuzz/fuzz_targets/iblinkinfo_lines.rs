//! The output of `iblinkinfo -l`.
#![no_main]

libfuzzer_sys::fuzz_target!(|rest: &[u8]| ringfold_fuzz::fabric("0x", rest));
