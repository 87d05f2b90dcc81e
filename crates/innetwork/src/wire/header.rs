//! The 24 bytes before each message between a child and an aggregator, little-endian.
//!
//! ```text
//!  0 kind     1 version
//!  2 data type, with bit 7 for accumulators     3 operation
//!  4 payload bytes (u32)      8 chunk (u64)
//! 16 the call's tag (u32)    20 root (u16)     22 zero (u16)
//! ```
//!
//! Kind and version keep their place in every version, so each end can name the other's version.

use ringfold_types::{Collective, DataType, ReduceOp, Wire};

use crate::contract::Reduction;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// The version of the protocol. It covers headers and the meaning of messages.
pub const VERSION: u8 = 3;

/// The bit of the data type's byte that marks accumulators.
const ACCUMULATOR: u8 = 0x80;

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A child has come.
    Hello = 1,
    /// The aggregator accepts the child.
    Welcome = 2,
    /// A child's part of a chunk of an all-reduce.
    AllReduce = 3,
    /// A child's part of a chunk of a reduce.
    Reduce = 4,
    /// A child has reached a barrier.
    Barrier = 5,
    /// The result of a chunk.
    Result = 6,
    /// The aggregator is alive. The payload names the children that it waits for.
    Beat = 7,
    /// The aggregator refuses the child or ends the group, or a child does so, below which the
    /// group has failed. The payload is the reason.
    Refused = 8,
    /// The child leaves the group as intended.
    Leave = 9,
}

impl Kind {
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::AllReduce,
            4 => Self::Reduce,
            5 => Self::Barrier,
            6 => Self::Result,
            7 => Self::Beat,
            8 => Self::Refused,
            9 => Self::Leave,
            _ => return None,
        })
    }

    /// The kind of a child's part of a chunk; `None` for collectives that gain nothing in a tree.
    #[must_use]
    pub const fn of(collective: Collective) -> Option<Self> {
        match collective {
            Collective::AllReduce => Some(Self::AllReduce),
            Collective::Reduce => Some(Self::Reduce),
            Collective::Barrier => Some(Self::Barrier),
            _ => None,
        }
    }

    /// The collective of a child's part of a chunk.
    #[must_use]
    pub const fn collective(self) -> Option<Collective> {
        match self {
            Self::AllReduce => Some(Collective::AllReduce),
            Self::Reduce => Some(Collective::Reduce),
            Self::Barrier => Some(Collective::Barrier),
            _ => None,
        }
    }
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The meaning of the message.
    pub kind: Kind,
    /// Bytes that follow the header.
    pub bytes: u32,
    /// The number of the chunk.
    pub chunk: u64,
    /// The call's tag.
    pub tag: u32,
    /// The type of the elements.
    pub data_type: DataType,
    /// The form of the elements.
    pub form: Wire,
    /// The operation; the scale of a `PreMulSum` does not travel.
    pub op: ReduceOp,
    /// The member that gets the result of a reduce.
    pub root: u16,
}

/// The reason why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// The other end speaks another version.
    #[error("version {theirs} of the offload protocol, not {ours}")]
    Version {
        /// The version of this end.
        ours: u8,
        /// The version of the other end.
        theirs: u8,
    },
    /// A field has a value without meaning.
    #[error("a header with an unknown {0}")]
    Unknown(&'static str),
}

impl Header {
    /// Makes a header of a message that is about no chunk.
    #[must_use]
    pub const fn plain(kind: Kind, bytes: u32) -> Self {
        Self {
            kind,
            bytes,
            chunk: 0,
            tag: 0,
            data_type: DataType::I8,
            form: Wire::Element,
            op: ReduceOp::Sum,
            root: 0,
        }
    }

    /// The reduction of a child's part of a chunk; `None` for other kinds.
    #[must_use]
    pub fn reduction(&self) -> Option<Reduction> {
        let Self { data_type, op, root, form, .. } = *self;
        let collective = self.kind.collective()?;
        Some(Reduction { collective, data_type, op, root, form })
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let form = if self.form == Wire::Accumulator { ACCUMULATOR } else { 0 };
        let mut bytes = [0; HEADER_BYTES];
        let data_type = self.data_type as u8 | form;
        bytes[..4].copy_from_slice(&[self.kind as u8, VERSION, data_type, self.op.code()]);
        bytes[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.tag.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.root.to_le_bytes());
        bytes
    }

    /// Decodes a header from an untrusted peer.
    ///
    /// # Errors
    /// The bytes are of another version, or no header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let [kind, version, data_type, op, fields @ ..] = *bytes;
        if version != VERSION {
            return Err(BadHeader::Version { ours: VERSION, theirs: version });
        }
        let [a, b, c, d, chunk @ .., e, f, g, h, i, j, 0, 0] = fields else {
            return Err(BadHeader::Unknown("end"));
        };
        let (form, data_type) = match data_type & ACCUMULATOR {
            0 => (Wire::Element, data_type),
            _ => (Wire::Accumulator, data_type & !ACCUMULATOR),
        };
        Ok(Self {
            kind: Kind::from_code(kind).ok_or(BadHeader::Unknown("kind"))?,
            bytes: u32::from_le_bytes([a, b, c, d]),
            chunk: u64::from_le_bytes(chunk),
            tag: u32::from_le_bytes([e, f, g, h]),
            data_type: DataType::from_code(data_type).ok_or(BadHeader::Unknown("data type"))?,
            form,
            op: ReduceOp::from_code(op).ok_or(BadHeader::Unknown("operation"))?,
            root: u16::from_le_bytes([i, j]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_has_this_layout() {
        let header = Header {
            kind: Kind::Reduce,
            bytes: 10,
            chunk: 1 << 40,
            tag: 0xabcd,
            data_type: DataType::Bf16,
            form: Wire::Accumulator,
            op: ReduceOp::Max,
            root: 0x0102,
        };
        let bytes = header.encode();
        let wanted: [u8; HEADER_BYTES] =
            [4, 3, 0x87, 3, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xcd, 0xab, 0, 0, 2, 1, 0, 0];
        assert_eq!(bytes, wanted);
        assert_eq!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let mut bytes = Header::plain(Kind::Beat, 0).encode();
        bytes[1] = 7;
        bytes[0] = 200;
        let error = Header::decode(&bytes).unwrap_err();
        assert_eq!(error, BadHeader::Version { ours: VERSION, theirs: 7 });
        assert!(error.to_string().contains('7') && error.to_string().contains('3'), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_not(mut bytes: [u8; HEADER_BYTES], close: bool) {
            if close {
                (bytes[0], bytes[1]) = (1 + bytes[0] % 9, VERSION);
                (bytes[2], bytes[3]) = (bytes[2] & 0x80 | (bytes[2] % 12), bytes[3] % 12);
                bytes[22..].fill(0);
            }
            let decoded = Header::decode(&bytes);
            prop_assert!(!close || decoded.is_ok());
            if let Ok(header) = decoded {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
