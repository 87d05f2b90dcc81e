//! A joining rank's `PeerInfo`, as another rank reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = ringfold::is_peer_info(bytes);
});
