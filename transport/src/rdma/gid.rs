//! The choice among a port's GIDs, or among its addresses over iWARP.

use std::net::{IpAddr, Ipv6Addr};

use super::address::router;
use super::sys::{Assigned, Gid, GidKind};

/// The reason for the choice among GIDs that this network namespace cannot use. A device shows the
/// GIDs of all namespaces.
pub(super) const ELSEWHERE: &str = "no GID is an address of this network namespace";

/// Returns the best of a port's GIDs for a job that connects at `near`, and the reason. The network
/// namespace has the `assigned` addresses.
pub(super) fn choose(
    gids: &[Gid],
    near: Option<IpAddr>,
    assigned: &[Assigned],
) -> Option<(Gid, &'static str)> {
    let best = gids.iter().copied().max_by_key(|gid| {
        let is_routable = gid.kind == GidKind::RoceV2 || names_router(gid);
        // Among equals the first wins.
        let first = u32::MAX - gid.index;
        let is_near = (is_of_family(gid, near), shared_bits(gid, near));
        (is_here(gid, assigned), is_routable, !gid.is_link_local(), is_near, first)
    })?;
    let why = match best.kind {
        _ if !is_here(&best, assigned) => ELSEWHERE,
        GidKind::InfiniBand if names_router(&best) => "other subnets reach it",
        GidKind::InfiniBand => "the first",
        GidKind::RoceV1 => "there is none of RoCE v2",
        GidKind::RoceV2 if best.is_link_local() => "of RoCE v2 there are only link-local ones",
        GidKind::RoceV2 if !is_of_family(&best, near) => "the only family of RoCE v2",
        GidKind::RoceV2 if near.is_none() => "the first of RoCE v2",
        GidKind::RoceV2 => "of RoCE v2, in the family of the job's address, nearest to it",
        GidKind::Iwarp if !is_of_family(&best, near) => "the only family of iWARP",
        GidKind::Iwarp if near.is_none() => "the first of iWARP",
        GidKind::Iwarp => "in the family of the job's address, nearest to it",
    };
    Some((best, why))
}

/// Returns whether this network namespace can use the GID: on Ethernet, one of its interfaces must
/// have the address.
fn is_here(gid: &Gid, assigned: &[Assigned]) -> bool {
    match gid.kind {
        GidKind::InfiniBand | GidKind::Iwarp => true,
        GidKind::RoceV1 | GidKind::RoceV2 => assigned
            .iter()
            .any(|it| it.address == gid.address() && [0, it.interface].contains(&gid.interface)),
    }
}

/// Returns whether the GID is InfiniBand's and names the routers to its subnet.
fn names_router(gid: &Gid) -> bool {
    gid.kind == GidKind::InfiniBand && router(&gid.bytes).is_some()
}

fn is_of_family(gid: &Gid, near: Option<IpAddr>) -> bool {
    near.is_none_or(|near| near.is_ipv4() == gid.ipv4().is_some())
}

/// Returns the leading bits that both addresses have in common.
fn shared_bits(gid: &Gid, near: Option<IpAddr>) -> u32 {
    let near = match near {
        None => return 0,
        Some(IpAddr::V4(near)) => near.to_ipv6_mapped(),
        Some(IpAddr::V6(near)) => near,
    };
    (Ipv6Addr::from(gid.bytes).to_bits() ^ near.to_bits()).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u32, address: &str, kind: GidKind) -> Gid {
        let bytes = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        Gid { index, interface: 0, bytes, kind }
    }

    #[test]
    fn the_nearest_of_the_right_kind_is_chosen() {
        let gids = [
            gid(0, "fe80::1", GidKind::RoceV1),
            gid(1, "fe80::1", GidKind::RoceV2),
            gid(2, "10.1.0.1", GidKind::RoceV1),
            gid(3, "10.1.0.1", GidKind::RoceV2),
            gid(4, "10.2.0.1", GidKind::RoceV2),
            gid(5, "2001:db8::1", GidKind::RoceV2),
        ];
        let here =
            gids.map(|gid| Assigned { address: gid.address(), interface: 1, is_loopback: false });
        let chosen = |gids: &[Gid], near: &str| {
            choose(gids, near.parse().ok(), &here).map(|(gid, _)| gid.index)
        };
        assert_eq!(chosen(&gids, "10.2.0.9"), Some(4));
        assert_eq!(chosen(&gids, "10.1.0.9"), Some(3));
        assert_eq!(chosen(&gids, "192.168.0.1"), Some(3));
        assert_eq!(chosen(&gids, "2001:db8::9"), Some(5));
        assert_eq!(chosen(&gids, "nowhere"), Some(3));
        assert_eq!(chosen(&gids[..2], "10.1.0.9"), Some(1));
        assert_eq!(chosen(&gids[..1], "10.1.0.9"), Some(0));
        assert_eq!(chosen(&[], "10.1.0.9"), None);
        let ports = ["fe80::1", "fec0:0:0:7::1", "fec0:0:21:7::1", "fec0:0:21:7::2"];
        let ports = [0, 1, 2, 3].map(|at| gid(at, ports[at as usize], GidKind::InfiniBand));
        assert_eq!(chosen(&ports, "10.1.0.9"), Some(2), "others can route to it");
        assert_eq!(chosen(&ports[..2], "10.1.0.9"), Some(1));
        assert_eq!(chosen(&ports[..1], "10.1.0.9"), Some(0));
        let addresses = gids.map(|it| Gid { kind: GidKind::Iwarp, ..it });
        assert_eq!(chosen(&addresses, "10.2.0.9"), Some(4));
        assert_eq!(chosen(&addresses, "2001:db8::9"), Some(5));
    }

    #[test]
    fn gids_of_other_network_namespaces_come_last() {
        let roce = |index, address| gid(index, address, GidKind::RoceV2);
        let near = "10.1.0.9".parse().ok();
        let here = ["fe80::1", "10.2.0.1"].map(|address| Assigned {
            address: address.parse().unwrap(),
            interface: 4,
            is_loopback: false,
        });
        let chosen = |gids: &[Gid]| choose(gids, near, &here).unwrap();
        let [near_one, far_one, local] =
            [roce(0, "10.1.0.1"), roce(1, "10.2.0.1"), roce(2, "fe80::1")];
        assert_eq!(chosen(&[near_one, far_one, local]).0, far_one);
        assert_eq!(chosen(&[near_one, local]).0, local);
        assert_eq!(chosen(&[near_one]), (near_one, ELSEWHERE));
        let [own, other] = [4, 5].map(|interface| Gid { interface, ..far_one });
        assert_eq!(chosen(&[other, own]).0, own);
        assert_eq!(chosen(&[other, local]).0, local, "an address of two namespaces");
    }
}
