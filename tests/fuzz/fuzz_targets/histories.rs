//! The call histories of two ranks, and the arbiter that compares them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::{history, cause_on, cause_on_leaving};

fuzz_target!(|accounts: (&[u8], &[u8])| {
    let (Some(first), Some(second)) = (history(accounts.0), history(accounts.1)) else { return };
    let left = cause_on_leaving(first.clone(), second.clone());
    assert!(left.is_none() || first != second, "equal histories do not differ");
    for cause in left.into_iter().chain(cause_on(first, second)) {
        assert!(!cause.to_string().is_empty());
    }
});
