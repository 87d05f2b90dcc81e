//! Which rails of two ranks belong together: those that share most of their addresses, which are
//! those of one subnet where there is one. Both ranks come to the same result by themselves.

use std::net::Ipv6Addr;

use super::address::subnet;
use super::message::RailCard;
use super::sys::GidKind;

/// Pairs of rails, one of the lower rank and one of the higher; no rail is in two.
pub(super) fn pairs(lower: &[RailCard], higher: &[RailCard]) -> Vec<(usize, usize)> {
    let mut candidates: Vec<(u32, usize, usize)> = Vec::new();
    for (low, one) in lower.iter().enumerate() {
        for (high, other) in higher.iter().enumerate() {
            if can_meet(one, other) {
                candidates.push((u32::MAX - shared_bits(one, other), low, high));
            }
        }
    }
    candidates.sort_unstable();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (_, low, high) in candidates {
        if pairs.iter().all(|pair| pair.0 != low && pair.1 != high) {
            pairs.push((low, high));
        }
    }
    pairs
}

fn can_meet(one: &RailCard, other: &RailCard) -> bool {
    one.kind == other.kind && (one.kind == GidKind::InfiniBand || family(one) == family(other))
}

/// IPv4, IPv6, or a single cable's own.
fn family(rail: &RailCard) -> u8 {
    match rail.gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => 4,
        [0xfe, second, ..] if second & 0xc0 == 0x80 => 0,
        _ => 6,
    }
}

/// Leading bits that both addresses have in common. On InfiniBand those of the subnet count, and
/// the rest names the port.
fn shared_bits(one: &RailCard, other: &RailCard) -> u32 {
    if one.kind == GidKind::InfiniBand {
        return (subnet(&one.gid) ^ subnet(&other.gid)).leading_zeros();
    }
    let number = |rail: &RailCard| Ipv6Addr::from(rail.gid).to_bits();
    (number(one) ^ number(other)).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roce(third: u8, last: u8) -> RailCard {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, third, 0, last]);
        RailCard { gid, lid: 0, mtu: 5, kind: GidKind::RoceV2, needs_grh: false }
    }

    #[test]
    fn rails_of_one_subnet_meet() {
        let lower = [roce(10, 1), roce(11, 1), roce(12, 1)];
        let higher = [roce(11, 2), roce(12, 2), roce(10, 2)];
        let mut found = pairs(&lower, &higher);
        found.sort_unstable();
        assert_eq!(found, [(0, 2), (1, 0), (2, 1)]);
    }

    #[test]
    fn what_cannot_meet_does_not() {
        let ib = RailCard { kind: GidKind::InfiniBand, ..roce(10, 1) };
        assert!(pairs(&[ib], &[roce(10, 2)]).is_empty());
        let first = RailCard { kind: GidKind::RoceV1, ..roce(10, 1) };
        assert!(pairs(&[first], &[roce(10, 2)]).is_empty(), "packets of another format");
        let iwarp = |last| RailCard { kind: GidKind::Iwarp, ..roce(10, last) };
        assert!(pairs(&[iwarp(1)], &[roce(10, 2)]).is_empty(), "no packets at all");
        assert_eq!(pairs(&[roce(10, 1), iwarp(1)], &[iwarp(2)]), [(1, 0)]);
        assert!(pairs(&[], &[roce(10, 2)]).is_empty());
        assert_eq!(pairs(&[ib, roce(9, 1)], &[roce(10, 2), roce(11, 2)]), [(1, 0)]);
    }

    #[test]
    fn on_infiniband_rails_meet_in_order() {
        let port = |last: u8| RailCard { kind: GidKind::InfiniBand, ..roce(1, last) };
        let found = pairs(&[port(9), port(1)], &[port(2), port(8)]);
        assert_eq!(found, [(0, 0), (1, 1)]);
    }
}
