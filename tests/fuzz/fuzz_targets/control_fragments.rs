//! Messages of a control connection, assembled from fragments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::Assembler;

/// Bytes of the longest accepted message.
const MESSAGE_BYTES: usize = 1000;

fuzz_target!(|fragments: Vec<&[u8]>| {
    let mut assembler = Assembler::new(MESSAGE_BYTES);
    for fragment in fragments {
        match assembler.push(fragment) {
            Ok(Some(message)) => assert!(message.len() <= MESSAGE_BYTES),
            Ok(None) => (),
            Err(_) => return,
        }
    }
});
