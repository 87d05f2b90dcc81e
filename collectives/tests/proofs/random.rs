//! Pseudo-random numbers, the same for the same seed (`SplitMix64`).

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers that differ in every run, unless `RINGFOLD_PROOFS_SEED` has the printed seed.
    pub(crate) fn seeded() -> Self {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
        let seed = option_env!("RINGFOLD_PROOFS_SEED");
        let seed = seed.map_or_else(|| now.into(), |seed| seed.parse().unwrap());
        println!("RINGFOLD_PROOFS_SEED={seed}");
        Self(seed)
    }

    /// A number from 0 to `end` - 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 32).unwrap() % end
    }

    /// One of several.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }

    /// Another generator.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}
