//! Pseudo-random numbers from a seed, which is printed.

use std::hash::{BuildHasher, RandomState};

/// Returns and prints the seed of a test: random, or `RINGFOLD_TEST_SEED` at compile time.
///
/// # Panics
/// If that is no number.
#[must_use]
#[expect(clippy::print_stdout, reason = "whoever repeats a test needs its seed")]
pub fn seed() -> u64 {
    let seed = option_env!("RINGFOLD_TEST_SEED").map_or_else(
        || RandomState::new().hash_one(0) >> 34,
        |seed| seed.parse().expect("RINGFOLD_TEST_SEED is a number"),
    );
    println!("RINGFOLD_TEST_SEED={seed}");
    seed
}

/// `SplitMix64`.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to `bound` - 1.
    pub const fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) >> 32) as usize % bound
    }
}
