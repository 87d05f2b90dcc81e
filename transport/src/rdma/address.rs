//! The address of packets from a port to a peer's port.
//!
//! On Ethernet the GID is the whole address. InfiniBand's switches read the LID and nothing else:
//!
//! * Within a subnet the LID is the peer's. A global header with the peer's GID is added where
//!   either port requires one.
//! * To another subnet the LID is that of the routers on this one. A GID with a site-local prefix
//!   can name it (its FLID). Otherwise only the subnet manager knows it, and verbs cannot ask.

use std::net::Ipv6Addr;

use super::card::RailCard;
use super::partition::Key;
use super::sys::GidKind;

/// The rule of partitions, and the remedy.
pub(super) const PARTITIONS_APART: &str = "ports reach each other within a partition, unless both \
                                           are limited members; RINGFOLD_IB_PKEY names a key";

/// The address that a queue pair gets for the peer's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The GID for the global header, if there is to be one.
    pub(super) gid: Option<[u8; 16]>,
    /// The LID; 0 on Ethernet.
    pub(super) lid: u16,
}

/// The reason why packets cannot get to the peer's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unroutable {
    /// The port has no LID.
    NoLid,
    /// The port is on another subnet, and its GID names no router.
    NoRouter { ours: u64, theirs: u64 },
    /// The ports have these keys of different partitions, or of limited members.
    Apart { ours: Key, theirs: Key },
}

impl Address {
    /// Returns the address by which a port reaches another of its kind.
    ///
    /// # Errors
    /// Packets cannot get there.
    pub(super) fn new(ours: &RailCard, theirs: &RailCard) -> Result<Self, Unroutable> {
        if !ours.partition.meets(theirs.partition) {
            return Err(Unroutable::Apart { ours: ours.partition, theirs: theirs.partition });
        }
        if theirs.kind != GidKind::InfiniBand {
            return Ok(Self { gid: Some(theirs.gid), lid: 0 });
        }
        let (own, other) = (subnet(&ours.gid), subnet(&theirs.gid));
        if own != other {
            let lid =
                router(&theirs.gid).ok_or(Unroutable::NoRouter { ours: own, theirs: other })?;
            return Ok(Self { gid: Some(theirs.gid), lid });
        }
        let lid = Some(theirs.lid).filter(|lid| *lid != 0).ok_or(Unroutable::NoLid)?;
        let is_global = ours.needs_grh || theirs.needs_grh;
        Ok(Self { gid: is_global.then_some(theirs.gid), lid })
    }
}

impl Unroutable {
    /// Returns the error for people, with the names of both ports and a remedy.
    pub(super) fn explain(self, port: &str, peer: &str) -> String {
        match self {
            Self::NoLid => format!(
                "{port} cannot reach {peer}, which has no LID; see whether a subnet manager runs \
                 (`sminfo`, `ibstat`)"
            ),
            Self::Apart { ours, theirs } => format!(
                "{port} has the partition key {ours} and {peer} {theirs}; {PARTITIONS_APART}"
            ),
            Self::NoRouter { ours, theirs } => {
                let [ours, theirs] =
                    [ours, theirs].map(|it| Ipv6Addr::from_bits(u128::from(it) << 64));
                format!(
                    "{port} is on the InfiniBand subnet {ours}/64 and {peer} on {theirs}/64; the \
                     peer's GID names no router between them (a site-local prefix with an FLID); \
                     connect both to one subnet, let RINGFOLD_IB_GID_INDEX name GIDs with FLIDs, \
                     or leave ports out by RINGFOLD_IB_HCA"
                )
            }
        }
    }
}

/// Returns whether the prefix is one of those that routed fabrics use: fec0::/10.
fn is_site_local(gid: &[u8; 16]) -> bool {
    gid[0] == 0xfe && gid[1] & 0xc0 == 0xc0
}

/// Returns the LID of the routers to an InfiniBand GID's subnet, if the GID names it.
pub(super) fn router(gid: &[u8; 16]) -> Option<u16> {
    let lid = u16::from(gid[4]) << 8 | u16::from(gid[5]);
    (is_site_local(gid) && lid != 0).then_some(lid)
}

/// Returns the prefix of an InfiniBand GID's subnet, without its routers' LID.
pub(super) fn subnet(gid: &[u8; 16]) -> u64 {
    let routers = if is_site_local(gid) { 0xffff_u64 << 16 } else { 0 };
    let prefix = (Ipv6Addr::from(*gid).to_bits() >> 64) as u64;
    prefix & !routers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(prefix: &str, lid: u16) -> RailCard {
        let gid = format!("{prefix}:2:c903:0:{lid:x}").parse::<Ipv6Addr>().unwrap().octets();
        RailCard { gid, lid, mtu: 5, ..RailCard::default() }
    }

    #[test]
    fn a_subnet_goes_by_lid() {
        let (one, other) = (port("fe80:0:0:0", 3), port("fe80:0:0:0", 4));
        assert_eq!(Address::new(&one, &other), Ok(Address { gid: None, lid: 4 }));
        let careful = RailCard { needs_grh: true, ..one };
        let global = Ok(Address { gid: Some(other.gid), lid: 4 });
        assert_eq!(Address::new(&careful, &other), global, "here");
        let global = Ok(Address { gid: Some(one.gid), lid: 3 });
        assert_eq!(Address::new(&other, &careful), global, "there");
        assert_eq!(Address::new(&one, &port("fe80:0:0:0", 0)), Err(Unroutable::NoLid));
    }

    #[test]
    fn other_subnets_go_by_their_routers() {
        let own = port("fec0:0:21:1", 3);
        let near = port("fec0:0:22:1", 4);
        assert_eq!(Address::new(&own, &near), Ok(Address { gid: None, lid: 4 }), "one subnet");
        let far = port("fec0:0:22:2", 4);
        let routed = Ok(Address { gid: Some(far.gid), lid: 0x22 });
        assert_eq!(Address::new(&own, &far), routed);
        for theirs in [port("fec0:0:0:2", 4), port("fe80:0:22:2", 4)] {
            let refused = Address::new(&own, &theirs).unwrap_err();
            let text = refused.explain("mlx5_0:1", "rank 7 (mlx5_3:1)");
            for part in
                ["mlx5_0:1 is on the InfiniBand subnet fec0:0:0:1::/64", "rank 7 (mlx5_3:1)"]
            {
                assert!(text.contains(part), "{text}");
            }
        }
    }

    /// A key may change once ports have paired.
    #[test]
    fn partitions_are_apart() {
        let [one, other] = [3, 4].map(|lid| port("fe80:0:0:0", lid));
        let other = RailCard { partition: Key(0x8001), ..other };
        let apart = Address::new(&one, &other).unwrap_err();
        let text = apart.explain("mlx5_0:1", "rank 7 (mlx5_3:1)");
        let start = "mlx5_0:1 has the partition key 0xffff and rank 7 (mlx5_3:1) 0x8001; ports";
        assert!(text.starts_with(start) && text.contains("IB_PKEY names a key"), "{text}");
    }

    #[test]
    fn ethernet_goes_by_gid() {
        let roce = |last| RailCard { kind: GidKind::RoceV2, ..port("fe80:0:0:0", last) };
        let address = Address { gid: Some(roce(4).gid), lid: 0 };
        assert_eq!(Address::new(&roce(3), &roce(4)), Ok(address), "whatever its LID means");
    }
}
