//! The header of a message.

use std::fmt;

use bytemuck::Pod;
use ringfold_reduce::data_type_of;
use ringfold_types::DataType;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 16;

/// The type of a message's elements. Bytes fit every type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements(u8);

impl Elements {
    pub(crate) const BYTES: Self = Self(DataType::U8 as u8);

    /// The type of `T`. A type that is no element's stands for bytes.
    pub(crate) fn of<T: Pod>() -> Self {
        data_type_of::<T>().map_or(Self::BYTES, |data_type| Self(data_type as u8))
    }

    pub(crate) fn fits(self, other: Self) -> bool {
        self == other || self == Self::BYTES || other == Self::BYTES
    }
}

impl fmt::Display for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DataType::from_code(self.0).map_or("an unknown type", DataType::name))
    }
}

/// The header of a message. One that has arrived may have any values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) tag: u32,
    pub(super) elements: Elements,
    pub(super) bytes: u64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&self.tag.to_le_bytes());
        header[4] = self.elements.0;
        header[8..].copy_from_slice(&self.bytes.to_le_bytes());
        header
    }

    pub(super) fn decode(header: &[u8; HEADER_BYTES]) -> Self {
        let [t0, t1, t2, t3, elements, _, _, _, bytes @ ..] = *header;
        Self {
            tag: u32::from_le_bytes([t0, t1, t2, t3]),
            elements: Elements(elements),
            bytes: u64::from_le_bytes(bytes),
        }
    }
}

/// The tag and the length of the message that begins with these bytes, if its header is whole.
pub(crate) fn tag_and_bytes(front: &[u8]) -> Option<(u32, u64)> {
    let Header { tag, bytes, .. } = Header::decode(front.first_chunk()?);
    Some((tag, bytes))
}
