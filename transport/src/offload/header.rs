//! The 32 bytes before each message between a child and an aggregator, little-endian.
//!
//! ```text
//!  0 kind     1 version   2 child    3 slot
//!  4 group (u32)          8 epoch (u32)         12 payload bytes (u32)
//! 16 chunk (u64)         24 the call's tag (u32)
//! 28 data type, with bit 7 for accumulators     29 operation
//! 30 root (u16)
//! ```
//!
//! Kind and version keep their place in every version, so each end can name the other's version.

use ringfold_types::limits::OFFLOAD_WINDOW_MAX;
use ringfold_types::{Collective, DataType, ReduceOp, Wire};

use super::contract::Reduction;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;

/// The version of the protocol. It covers headers, handshake and the meaning of messages.
pub const VERSION: u8 = 2;

/// The bit of the data type's byte that marks accumulators.
const ACCUMULATOR: u8 = 0x80;

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A child names itself, its group and its epoch.
    Hello = 1,
    /// The aggregator's challenge and proof.
    Challenge = 2,
    /// The child's proof.
    Proof = 3,
    /// The aggregator accepts the child.
    Welcome = 4,
    /// A child's part of a chunk of an all-reduce.
    AllReduce = 5,
    /// A child's part of a chunk of a reduce.
    Reduce = 6,
    /// A child has reached a barrier.
    Barrier = 7,
    /// The result of a chunk.
    Result = 8,
    /// The aggregator is alive. The payload names the children that it waits for.
    Beat = 9,
    /// The aggregator refuses the child or ends the epoch, or a child does so, below which the
    /// group has failed. The payload is the reason.
    Refused = 10,
    /// The child leaves the group as intended.
    Leave = 11,
}

impl Kind {
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Hello,
            2 => Self::Challenge,
            3 => Self::Proof,
            4 => Self::Welcome,
            5 => Self::AllReduce,
            6 => Self::Reduce,
            7 => Self::Barrier,
            8 => Self::Result,
            9 => Self::Beat,
            10 => Self::Refused,
            11 => Self::Leave,
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
    /// The child's number at its aggregator.
    pub child: u8,
    /// The slot of the chunk: its number modulo twice the window. The upper half of the slots is
    /// the second generation.
    pub slot: u8,
    /// The group's number at the aggregator.
    pub group: u32,
    /// The epoch of the group, which grows with each restart.
    pub epoch: u32,
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
    pub const fn plain(kind: Kind, group: u32, epoch: u32, bytes: u32) -> Self {
        Self {
            kind,
            child: 0,
            slot: 0,
            group,
            epoch,
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
        bytes[..4].copy_from_slice(&[self.kind as u8, VERSION, self.child, self.slot]);
        bytes[4..8].copy_from_slice(&self.group.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.tag.to_le_bytes());
        bytes[28] = self.data_type as u8 | form;
        bytes[29] = self.op.code();
        bytes[30..].copy_from_slice(&self.root.to_le_bytes());
        bytes
    }

    /// Decodes a header from an untrusted peer.
    ///
    /// # Errors
    /// The bytes are of another version, or no header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let [kind, version, child, slot, fields @ ..] = *bytes;
        if version != VERSION {
            return Err(BadHeader::Version { ours: VERSION, theirs: version });
        }
        let word = |at: usize| {
            u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
        };
        let form = if fields[24] & ACCUMULATOR == 0 { Wire::Element } else { Wire::Accumulator };
        if usize::from(slot) >= 2 * OFFLOAD_WINDOW_MAX {
            return Err(BadHeader::Unknown("slot"));
        }
        Ok(Self {
            kind: Kind::from_code(kind).ok_or(BadHeader::Unknown("kind"))?,
            child,
            slot,
            group: word(0),
            epoch: word(4),
            bytes: word(8),
            chunk: u64::from(word(12)) | u64::from(word(16)) << 32,
            tag: word(20),
            data_type: DataType::from_code(fields[24] & !ACCUMULATOR)
                .ok_or(BadHeader::Unknown("data type"))?,
            form,
            op: ReduceOp::from_code(fields[25]).ok_or(BadHeader::Unknown("operation"))?,
            root: u16::from_le_bytes([fields[26], fields[27]]),
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
            child: 2,
            slot: 3,
            group: 0x0605_0404,
            epoch: 9,
            bytes: 10,
            chunk: 1 << 40,
            tag: 0xabcd,
            data_type: DataType::Bf16,
            form: Wire::Accumulator,
            op: ReduceOp::Max,
            root: 0x0102,
        };
        let bytes = header.encode();
        let wanted: [u8; 32] = [
            6, 2, 2, 3, 4, 4, 5, 6, 9, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xcd, 0xab, 0,
            0, 0x87, 3, 2, 1,
        ];
        assert_eq!(bytes, wanted);
        assert_eq!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let mut bytes = Header::plain(Kind::Beat, 1, 2, 0).encode();
        bytes[1] = 7;
        bytes[0] = 200;
        let error = Header::decode(&bytes).unwrap_err();
        assert_eq!(error, BadHeader::Version { ours: VERSION, theirs: 7 });
        assert!(error.to_string().contains('7') && error.to_string().contains('2'), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_not(mut bytes: [u8; HEADER_BYTES], close: bool) {
            if close {
                (bytes[0], bytes[1]) = (1 + bytes[0] % 11, VERSION);
                (bytes[3], bytes[28], bytes[29]) =
                    (bytes[3] % 128, bytes[28] & 0x80 | (bytes[28] % 12), bytes[29] % 12);
            }
            let decoded = Header::decode(&bytes);
            prop_assert!(!close || decoded.is_ok());
            if let Ok(header) = decoded {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
