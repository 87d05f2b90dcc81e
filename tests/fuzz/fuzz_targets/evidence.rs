//! A joining rank's evidence of the fabric.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = ringfold::is_evidence(bytes);
});
