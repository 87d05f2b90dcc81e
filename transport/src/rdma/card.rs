//! A port as peers know it.

use ringfold_topology::fabric::Place;
use ringfold_types::Digest;

use super::partition::Key;
use super::sys::GidKind;

/// Bytes of a card.
pub(super) const RAIL_BYTES: usize = 31;

/// A port as the peer must know it to pair it with one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RailCard {
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) kind: GidKind,
    /// Packets to and from the port must have a global header (InfiniBand).
    pub(super) needs_grh: bool,
    /// The port's partition.
    pub(super) partition: Key,
    /// The digest of device and port, for comparison only.
    pub(super) name: u32,
    /// Bits of the GID's IP network, of 128; 0 if unknown.
    pub(super) prefix: u8,
    /// The port's place in the fabric.
    pub(super) label: Label,
}

/// The place of a port in the fabric, as far as the ranks agreed on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// The rail and plane of the port.
    pub(super) place: Option<Place>,
    /// The rank prefers the port.
    pub(super) is_preferred: bool,
    /// Packets of the port reach other rails of its plane.
    pub(super) crosses: bool,
}

impl RailCard {
    pub(super) fn encode(&self) -> [u8; RAIL_BYTES] {
        let mut bytes = [0; RAIL_BYTES];
        bytes[..16].copy_from_slice(&self.gid);
        bytes[16..18].copy_from_slice(&self.lid.to_le_bytes());
        bytes[18] = self.mtu;
        bytes[19] = self.kind as u8;
        let Label { place, is_preferred, crosses } = self.label;
        let flags = [self.needs_grh, is_preferred, crosses, place.is_some()];
        bytes[20] = flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(flag));
        bytes[21] = self.prefix;
        let Place { rail, plane } = place.unwrap_or(Place { rail: 0, plane: 0 });
        bytes[22..24].copy_from_slice(&rail.to_le_bytes());
        bytes[24] = plane;
        bytes[25..29].copy_from_slice(&self.name.to_le_bytes());
        bytes[29..].copy_from_slice(&self.partition.0.to_le_bytes());
        bytes
    }

    /// Reads a card, if the bytes are one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        let lid = u16::from_le_bytes([bytes[16], bytes[17]]);
        let kind = GidKind::of(bytes[19])?;
        let (mtu @ 1..=5, flags @ 0..16, prefix @ 0..=128) = (bytes[18], bytes[20], bytes[21])
        else {
            return None;
        };
        let [needs_grh, is_preferred, crosses, is_labelled] =
            [0, 1, 2, 3].map(|bit| flags >> bit & 1 == 1);
        let place = Place { rail: u16::from_le_bytes([bytes[22], bytes[23]]), plane: bytes[24] };
        let label = Label { place: is_labelled.then_some(place), is_preferred, crosses };
        let name = u32::from_le_bytes([bytes[25], bytes[26], bytes[27], bytes[28]]);
        let partition = Key(u16::from_le_bytes([bytes[29], bytes[30]]));
        Some(Self { gid, lid, mtu, kind, needs_grh, partition, name, prefix, label })
    }
}

/// Returns a digest of a port's name. Ranks compare names by it, because messages have a fixed
/// size.
pub(super) fn digest(name: &str) -> u32 {
    (Digest::of(name) >> 32) as u32
}
