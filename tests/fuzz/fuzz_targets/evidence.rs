//! Evidence of the fabric that a rank tells the others when it joins.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = ringfold::is_evidence(bytes);
});
