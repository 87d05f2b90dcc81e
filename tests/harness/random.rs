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
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers from a printed [`seed`].
    #[must_use]
    pub fn seeded() -> Self {
        Self(seed())
    }

    /// Returns another generator.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// Returns 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number from 0 to `end` - 1.
    pub const fn below(&mut self, end: usize) -> usize {
        (self.bits() >> 32) as usize % end
    }

    /// Returns a number from `low` to `high`, both included.
    pub const fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns true in `percent` of a hundred cases.
    pub const fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of several values.
    pub const fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Returns 0 to `length` - 1 in a random order.
    #[must_use]
    pub fn order(&mut self, length: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..length).collect();
        self.shuffle(&mut order);
        order
    }
}
