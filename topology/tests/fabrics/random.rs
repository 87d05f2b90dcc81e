//! Pseudo-random numbers, the same for the same seed (`SplitMix64`).

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number from 0 to `end` - 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits() >> 32).unwrap() % end
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.max(low) - low + 1)
    }

    /// A number from `low` to `high` whose magnitudes are equally likely.
    pub(crate) fn magnitude(&mut self, low: usize, high: usize) -> usize {
        let bits = |n: usize| n.max(1).ilog2();
        let top = 1usize << self.between(bits(low) as usize, bits(high) as usize);
        self.between(top, 2 * top - 1).clamp(low, high.max(low))
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A random order of 0 to `length` - 1.
    pub(crate) fn order(&mut self, length: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..length).collect();
        self.shuffle(&mut order);
        order
    }
}
