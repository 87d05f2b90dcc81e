//! A digest by which ranks compare values that are too long to tell each other.

/// The FNV-1a digest of 64 bits. It shows a difference made by mistake, not one made on purpose.
pub(crate) fn digest(bytes: impl AsRef<[u8]>) -> u64 {
    bytes.as_ref().iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
