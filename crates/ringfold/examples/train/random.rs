//! Random numbers that are the same on every rank and machine: SplitMix64 (Steele, Lea and Flood,
//! 2014).

/// A generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// A generator that depends only on `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, but not including, 1.
    pub(crate) fn unit(&mut self) -> f32 {
        // An f32 holds 24 bits without rounding.
        (self.bits() >> 40) as f32 / (1 << 24) as f32
    }

    /// Puts `items` in a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let pick = self.bits() % (last as u64 + 1);
            items.swap(last, usize::try_from(pick).unwrap_or(last));
        }
    }
}
