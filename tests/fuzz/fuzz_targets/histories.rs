//! The call histories of two ranks, and the arbiter that compares them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::{history, verdict_on, verdict_on_leaving};

fuzz_target!(|accounts: (&[u8], &[u8])| {
    let (Some(first), Some(second)) = (history(accounts.0), history(accounts.1)) else { return };
    let left = verdict_on_leaving(first.clone(), second.clone());
    assert!(left.is_none() || first != second, "equal histories do not differ");
    for verdict in left.into_iter().chain(verdict_on(first, second)) {
        assert!(!verdict.to_string().is_empty());
    }
});
