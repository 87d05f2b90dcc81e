//! `RINGFOLD_ALGO`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_collectives::select::Constraints;

fuzz_target!(|text: &str| drop(text.parse::<Constraints>()));
