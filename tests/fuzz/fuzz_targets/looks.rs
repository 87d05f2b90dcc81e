//! What `ringfold top` asks a rank of another host, and the records that the rank answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::is_look;

fuzz_target!(|bytes: &[u8]| {
    let _ = is_look(bytes);
});
