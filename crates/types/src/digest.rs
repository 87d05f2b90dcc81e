//! Hashes that are the same in every version of Rust, and on every machine if they are of bytes.
//! They detect accidental differences, not deliberate ones.

use core::hash::Hasher;

/// A running FNV-1a digest of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The digest of these bytes alone.
    #[must_use]
    pub fn of(bytes: impl AsRef<[u8]>) -> u64 {
        Self::default().and(bytes.as_ref()).0
    }

    /// Adds bytes, preceded by their number, so that neighbouring texts stay distinct.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.number(bytes.len() as u128).and(bytes)
    }

    /// Adds a number of up to 128 bits.
    #[must_use]
    pub fn number(self, number: u128) -> Self {
        self.and(&number.to_le_bytes())
    }

    /// The digest of all added values.
    #[must_use]
    pub const fn finish(self) -> u64 {
        self.0
    }

    fn and(self, bytes: &[u8]) -> Self {
        let add =
            |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.iter().fold(self.0, add))
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        *self = self.and(bytes);
    }
}

/// Spreads every bit of `word` over all bits of the result (the finalizer of `SplitMix64`; Steele,
/// Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_fnv() {
        assert_eq!(Digest::of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Digest::of("foobar"), 0x8594_4171_f739_67e8);
        let pair = |one: &[u8], other: &[u8]| Digest::default().bytes(one).bytes(other).finish();
        assert_ne!(pair(b"ab", b"c"), pair(b"a", b"bc"));
    }
}
