//! Pseudo-random numbers from a seed, which is printed.

use std::hash::{BuildHasher, RandomState};

/// Returns and prints the seed of a test: random, or `RINGFOLD_TEST_SEED` at compile time.
pub(crate) fn seed() -> u64 {
    let seed = option_env!("RINGFOLD_TEST_SEED").map_or_else(
        || fresh() >> 34,
        |seed| seed.parse().expect("RINGFOLD_TEST_SEED is a number"),
    );
    println!("RINGFOLD_TEST_SEED={seed}");
    seed
}

/// Returns a random number from the system.
pub(crate) fn fresh() -> u64 {
    RandomState::new().hash_one(0)
}

/// Knuth's MMIX generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to `bound` - 1.
    pub(crate) const fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
