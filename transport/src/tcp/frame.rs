//! Frames of a data connection: an eight-byte header and the payload.
//!
//! ```text
//! 0        4        8
//! | tag    | length | length bytes of payload
//! ```
//!
//! Both numbers are little-endian. The length is 1 to `limits::FRAME_BYTES_MAX`.

use ringfold_types::limits::FRAME_BYTES_MAX;

/// Bytes of an encoded `Header`.
pub const HEADER_BYTES: usize = 8;

const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The tag that the sender gave to `send`.
    pub tag: u32,
    /// Bytes of payload.
    pub len: usize,
}

/// The reason why eight bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// The length is 0.
    #[error("a frame without payload")]
    Empty,
    /// The length is beyond `limits::FRAME_BYTES_MAX`.
    #[error("a frame longer than the limit")]
    TooLong,
}

impl Header {
    /// Encodes the header for the wire.
    ///
    /// # Panics
    /// If `len` is beyond `limits::FRAME_BYTES_MAX`.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        assert!(self.len <= FRAME_BYTES_MAX, "frame beyond limits::FRAME_BYTES_MAX");
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the assertion above")]
        let len = self.len as u32;
        let [a, b, c, d] = self.tag.to_le_bytes();
        let [e, f, g, h] = len.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Decodes the header that the peer wrote.
    ///
    /// # Errors
    /// The length is 0 or beyond `limits::FRAME_BYTES_MAX`.
    pub fn decode([a, b, c, d, e, f, g, h]: [u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let len = u32::from_le_bytes([e, f, g, h]) as usize;
        match len {
            0 => Err(BadHeader::Empty),
            1..=FRAME_BYTES_MAX => Ok(Self { tag: u32::from_le_bytes([a, b, c, d]), len }),
            _ => Err(BadHeader::TooLong),
        }
    }
}

impl BadHeader {
    /// Converts the reason for `LinkFault::Protocol`.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Empty => "a frame without payload",
            Self::TooLong => "a frame longer than the limit",
        }
    }
}
