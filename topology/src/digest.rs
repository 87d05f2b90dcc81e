//! A digest of values that ranks compare. It is the same on every machine and in every version of
//! Rust.

/// A running FNV-1a digest of 64 bits. It distinguishes values, but does not protect against
/// deliberate collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The digest of an empty sequence.
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes, preceded by their number, so that neighbouring texts stay distinct.
    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self.number(bytes.len() as u128), |digest, byte| digest.byte(*byte))
    }

    /// Adds a number of up to 128 bits.
    #[must_use]
    pub(crate) fn number(self, number: u128) -> Self {
        number.to_le_bytes().iter().fold(self, |digest, byte| digest.byte(*byte))
    }

    /// The digest of all added values.
    pub(crate) const fn finish(self) -> u64 {
        self.0
    }

    fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}
