//! Two copies of the record of a process, which the process changes meanwhile.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::is_record;

fuzz_target!(|copies: (Vec<(u16, u64)>, Vec<(u16, u64)>)| {
    let _ = is_record([&copies.0, &copies.1]);
});
