//! What two ranks say that they have done, and the judge who has to make sense of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_bootstrap::decode::{history, verdict_on};

fuzz_target!(|accounts: (&[u8], &[u8])| {
    if let (Some(first), Some(second)) = (history(accounts.0), history(accounts.1))
        && let Some(verdict) = verdict_on(first, second)
    {
        assert!(!verdict.to_string().is_empty());
    }
});
