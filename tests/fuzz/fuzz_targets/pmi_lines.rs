//! Lines of a process manager.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::pmi::{field, is_one_host, next_line};
use ringfold_types::limits::PMI_LINE_BYTES_MAX;

fuzz_target!(|pieces: Vec<&[u8]>| {
    let mut unread = Vec::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            match next_line(&mut unread) {
                Ok(Some(line)) => drop((field(&line, "cmd").map(is_one_host), is_one_host(&line))),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(unread.len() <= PMI_LINE_BYTES_MAX);
    }
});
