//! The ticket of member 0: the aggregators of one tree, and their numbers for the group.
//!
//! ```text
//! 0 version   1 window   2 aggregators (u16)   4 chunk bytes (u32)
//! each: first member (u16), children (u16), port (u16), port for RDMA (u16), IPv6 address
//! ```
//!
//! The ticket holds no key. All members derive the group's key from the job's secret.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringfold_types::limits::{
    AGGREGATOR_CHILDREN_MAX, OFFLOAD_CHUNK_BYTES_MAX, OFFLOAD_LEAVES_MAX, OFFLOAD_TICKET_BYTES_MAX,
    OFFLOAD_WINDOW_MAX,
};

use super::error::OffloadError;
use super::header::VERSION;
use super::links::Endpoints;

const HEAD_BYTES: usize = 8;
const LEAF_BYTES: usize = 24;

/// The grant of one tree of aggregators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Chunks that a member may be ahead of the oldest result that it has not taken.
    pub window: usize,
    /// Bytes that a member may hand over in one chunk.
    pub chunk_bytes_max: usize,
    /// The aggregators that have members as children, in the order of those members.
    pub leaves: Vec<Leaf>,
}

/// An aggregator with members as children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The first member; the others follow without gaps.
    pub first: u16,
    /// The number of these members.
    pub children: u16,
    /// The endpoints of the group there.
    pub at: Endpoints,
}

impl Grant {
    /// Encodes the grant as a ticket.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let byte = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
        let count = u16::try_from(self.leaves.len()).unwrap_or(u16::MAX);
        let chunk = u32::try_from(self.chunk_bytes_max).unwrap_or(u32::MAX);
        let mut bytes = vec![VERSION, byte(self.window)];
        bytes.extend(count.to_le_bytes());
        bytes.extend(chunk.to_le_bytes());
        for leaf in &self.leaves {
            let Endpoints { tcp, rdma_port } = leaf.at;
            let address = match tcp.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes.extend(leaf.first.to_le_bytes());
            bytes.extend(leaf.children.to_le_bytes());
            bytes.extend(tcp.port().to_le_bytes());
            bytes.extend(rdma_port.to_le_bytes());
            bytes.extend(address.octets());
        }
        bytes
    }

    /// Decodes a ticket from another member.
    ///
    /// # Errors
    /// The bytes are of another version, or no ticket.
    pub fn decode(bytes: &[u8]) -> Result<Self, OffloadError> {
        let wrong = OffloadError::Protocol("a ticket that no member makes");
        let Some(&theirs) = bytes.first() else { return Err(wrong) };
        if theirs != VERSION {
            return Err(OffloadError::Version { ours: VERSION, theirs });
        }
        Self::fields(bytes).filter(Self::is_sound).ok_or(wrong)
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > OFFLOAD_TICKET_BYTES_MAX {
            return None;
        }
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [_, window, count @ .., a, b, c, d] = *head;
        let count = usize::from(u16::from_le_bytes(count));
        if count > OFFLOAD_LEAVES_MAX || rest.len() != count * LEAF_BYTES {
            return None;
        }
        Some(Self {
            window: window.into(),
            chunk_bytes_max: u32::from_le_bytes([a, b, c, d]) as usize,
            leaves: rest.as_chunks::<LEAF_BYTES>().0.iter().map(Leaf::decode).collect(),
        })
    }

    fn is_sound(&self) -> bool {
        let mut next = 0;
        let follows = |leaf: &Leaf| {
            let sound = usize::from(leaf.first) == next
                && (1..=AGGREGATOR_CHILDREN_MAX).contains(&usize::from(leaf.children));
            next += usize::from(leaf.children);
            sound
        };
        (1..=OFFLOAD_WINDOW_MAX).contains(&self.window)
            && (1..=OFFLOAD_CHUNK_BYTES_MAX).contains(&self.chunk_bytes_max)
            && !self.leaves.is_empty()
            && self.leaves.iter().all(follows)
    }

    /// The aggregator of `member`, and the number of its child there.
    #[must_use]
    pub fn place(&self, member: u16) -> Option<(Leaf, u8)> {
        let leaf = self.leaves.iter().rev().find(|leaf| leaf.first <= member)?;
        let child = member - leaf.first;
        (child < leaf.children).then_some((*leaf, u8::try_from(child).ok()?))
    }
}

impl Leaf {
    fn decode(bytes: &[u8; LEAF_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, address @ ..] = *bytes;
        let address = IpAddr::V6(Ipv6Addr::from(address)).to_canonical();
        let tcp = SocketAddr::new(address, u16::from_le_bytes([e, f]));
        Self {
            first: u16::from_le_bytes([a, b]),
            children: u16::from_le_bytes([c, d]),
            at: Endpoints { tcp, rdma_port: u16::from_le_bytes([g, h]) },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn grant() -> Grant {
        let at = |tcp: &str| Endpoints { tcp: tcp.parse().unwrap(), rdma_port: 9 };
        let leaf = |first, tcp: &str| Leaf { first, children: 3, at: at(tcp) };
        let leaves = vec![leaf(0, "10.0.0.1:7000"), leaf(3, "[fe80::1]:7001")];
        Grant { window: 8, chunk_bytes_max: 1 << 16, leaves }
    }

    #[test]
    fn a_ticket_travels_and_names_the_place_of_each_member() {
        assert_eq!(Grant::decode(&grant().encode()).unwrap(), grant());
        let child = |member| grant().place(member).map(|(leaf, child)| (leaf.first, child));
        assert_eq!(child(2), Some((0, 2)));
        assert_eq!(child(3), Some((3, 0)));
        assert_eq!(child(6), None);
    }

    #[test]
    fn another_ticket_is_refused() {
        let bytes = grant().encode();
        for len in 0..bytes.len() {
            assert!(Grant::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let newer = [&[VERSION + 1], &bytes[1..]].concat();
        assert!(matches!(
            Grant::decode(&newer),
            Err(OffloadError::Version { ours: VERSION, theirs }) if theirs == VERSION + 1
        ));
        for wrong in [
            Grant { window: 0, ..grant() },
            Grant { window: OFFLOAD_WINDOW_MAX + 1, ..grant() },
            Grant { chunk_bytes_max: OFFLOAD_CHUNK_BYTES_MAX + 1, ..grant() },
            Grant { leaves: vec![], ..grant() },
            Grant { leaves: vec![grant().leaves[1]], ..grant() },
        ] {
            assert!(Grant::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_ticket_or_not(mut bytes in vec(any::<u8>(), 0..100)) {
            if let Some(version) = bytes.first_mut() {
                *version = VERSION;
            }
            if let Ok(grant) = Grant::decode(&bytes) {
                prop_assert_eq!(Grant::decode(&grant.encode()).unwrap(), grant);
            }
        }
    }
}
