//! Decrypted messages between ranks, the coordinator and the launcher.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::Secret;
use ringfold_bootstrap::decode::{
    Greeting, is_coordinator_message, is_launcher_answer, is_launcher_message, is_rank_message,
    is_relay_message,
};

fuzz_target!(|bytes: &[u8]| {
    let launcher = [is_launcher_message, is_launcher_answer];
    let ranks = [is_rank_message, is_coordinator_message, is_relay_message];
    for is_message in launcher.into_iter().chain(ranks) {
        is_message(bytes);
    }
    drop(Secret::parse(bytes));
    if let Some((first, _)) = bytes.split_first_chunk()
        && let Some(greeting) = Greeting::decode(first)
    {
        assert_eq!(Greeting::decode(&greeting.encode()), Some(greeting));
    }
});
