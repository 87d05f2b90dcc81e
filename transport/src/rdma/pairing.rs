//! The pairs of ports by which two ranks communicate. Both ranks compute them from the same cards,
//! so they agree without another message.
//!
//! 1. Ports with equal labels pair, and so do ports without labels.
//! 2. If there are no such pairs, a labelled port pairs with one that has no label.
//! 3. If there are no such pairs, ports on two rails of one plane pair if both cross.
//!
//! Ports pair only within a partition. Among several candidates, ports of one subnet come first,
//! then ports of equal names, then the order of the ports. A port without a label that has a
//! partner in its subnet pairs with no port of another subnet. Of all pairs the ranks use those
//! that both prefer, else those that one prefers. They keep one of the others as a spare, which
//! carries data while no other pair does.

use std::cmp::Reverse;
use std::net::Ipv6Addr;

use super::address::subnet;
use super::card::RailCard;
use super::sys::GidKind;

/// Pairs of ports, one of the lower rank and one of the higher. No port is in two pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The pairs that carry data.
    pub(super) main: Vec<(usize, usize)>,
    /// The pair that carries data while no other does.
    pub(super) spare: Option<(usize, usize)>,
}

/// Returns the pairs by which two ranks communicate.
pub(super) fn choose(lower: &[RailCard], higher: &[RailCard]) -> Choice {
    [is_same_place, is_half_labelled, is_crossing]
        .into_iter()
        .map(|may_pair| matched(lower, higher, may_pair))
        .find(|pairs| !pairs.is_empty())
        .map(|pairs| preferred(pairs, lower, higher))
        .unwrap_or_default()
}

/// Returns the most pairs that a rank has with a peer. These are its preferred ports and a spare
/// one, or all ports if it prefers none.
pub(super) fn most(cards: &[RailCard]) -> usize {
    match cards.iter().filter(|card| card.label.is_preferred).count() {
        0 => cards.len(),
        preferred => cards.len().min(preferred + 1),
    }
}

/// Returns the ports that a rank tells a peer of, with their indices. A rank that may have fewer
/// pairs than it would use ignores preferences, because both ranks must tell of the same rails.
pub(super) fn announced(cards: Vec<RailCard>, pairs: usize) -> Vec<(usize, RailCard)> {
    let is_short = pairs < most(&cards);
    let mut announced: Vec<_> = cards.into_iter().enumerate().collect();
    if is_short {
        announced.sort_by_key(|(_, card)| (card.label.place.is_none(), card.label.place));
        announced.truncate(pairs);
    }
    announced
}

fn is_same_place(one: &RailCard, other: &RailCard) -> bool {
    one.label.place == other.label.place
}

fn is_half_labelled(one: &RailCard, other: &RailCard) -> bool {
    one.label.place.is_some() != other.label.place.is_some()
}

fn is_crossing(one: &RailCard, other: &RailCard) -> bool {
    let planes = [one, other].map(|card| card.label.place.map(|place| place.plane));
    planes[0].is_some() && planes[0] == planes[1] && one.label.crosses && other.label.crosses
}

/// Matches ports that may pair, the best candidates first.
fn matched(
    lower: &[RailCard],
    higher: &[RailCard],
    may_pair: fn(&RailCard, &RailCard) -> bool,
) -> Vec<(usize, usize)> {
    let mut candidates = Vec::new();
    for (low, one) in lower.iter().enumerate() {
        for (high, other) in higher.iter().enumerate() {
            if can_meet(one, other) && may_pair(one, other) {
                candidates.push((nearness(one, other), low, high));
            }
        }
    }
    let has_label = |low: usize, high: usize| {
        lower[low].label.place.is_some() && higher[high].label.place.is_some()
    };
    let at_home: Vec<_> =
        candidates.iter().filter(|(near, ..)| near.subnet == Subnet::Same).copied().collect();
    candidates.retain(|(near, low, high)| {
        let has_home = || at_home.iter().any(|home| home.1 == *low || home.2 == *high);
        near.subnet != Subnet::Different || has_label(*low, *high) || !has_home()
    });
    candidates.sort_unstable();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (_, low, high) in candidates {
        if pairs.iter().all(|pair| pair.0 != low && pair.1 != high) {
            pairs.push((low, high));
        }
    }
    pairs
}

/// Takes the pairs that most of the two ranks prefer, and the best of the others as a spare. A rank
/// without a preferred port prefers all.
fn preferred(pairs: Vec<(usize, usize)>, lower: &[RailCard], higher: &[RailCard]) -> Choice {
    let [lower_prefers, higher_prefers] = [lower, higher].map(|cards| {
        let has_none = cards.iter().all(|card| !card.label.is_preferred);
        move |at: usize| has_none || cards[at].label.is_preferred
    });
    let votes =
        |(low, high): (usize, usize)| u8::from(lower_prefers(low)) + u8::from(higher_prefers(high));
    let best = pairs.iter().copied().map(votes).max();
    let (mut main, others): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|pair| Some(votes(*pair)) == best);
    let most = most(lower).min(most(higher));
    main.truncate(most);
    let by_votes = |pair: &(usize, usize)| Reverse(votes(*pair));
    let spare = others.into_iter().min_by_key(by_votes).filter(|_| main.len() < most);
    Choice { main, spare }
}

fn can_meet(one: &RailCard, other: &RailCard) -> bool {
    let is_alike = one.kind == GidKind::InfiniBand || family(one) == family(other);
    one.kind == other.kind && is_alike && one.partition.meets(other.partition)
}

/// The family of a rail's address: 4 for IPv4, 6 for IPv6, 0 for a link-local one.
fn family(rail: &RailCard) -> u8 {
    match rail.gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => 4,
        [0xfe, second, ..] if second & 0xc0 == 0x80 => 0,
        _ => 6,
    }
}

/// The suitability of two ports for each other, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nearness {
    /// Leading address bits that differ from the best case. It is 0 for ports of one subnet.
    distance: u32,
    has_other_name: bool,
    subnet: Subnet,
}

/// Whether two ports are on one subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subnet {
    Same,
    Unknown,
    Different,
}

fn nearness(one: &RailCard, other: &RailCard) -> Nearness {
    let subnet = subnets(one, other);
    let distance = match subnet {
        Subnet::Same => 0,
        Subnet::Unknown | Subnet::Different => 128 - shared_bits(one, other).min(127),
    };
    Nearness { distance, has_other_name: one.name != other.name, subnet }
}

/// Compares two ports' subnets: InfiniBand's by their prefix, those of IP by their prefix length.
fn subnets(one: &RailCard, other: &RailCard) -> Subnet {
    let is_same = if one.kind == GidKind::InfiniBand {
        subnet(&one.gid) == subnet(&other.gid)
    } else if one.prefix == 0 || other.prefix == 0 || family(one) == 0 {
        return Subnet::Unknown;
    } else {
        one.prefix == other.prefix && shared_bits(one, other) >= u32::from(one.prefix)
    };
    if is_same { Subnet::Same } else { Subnet::Different }
}

/// Returns the leading bits that both addresses have in common. On InfiniBand only the bits of the
/// subnet count, because the rest names the port.
fn shared_bits(one: &RailCard, other: &RailCard) -> u32 {
    if one.kind == GidKind::InfiniBand {
        return (subnet(&one.gid) ^ subnet(&other.gid)).leading_zeros();
    }
    let number = |rail: &RailCard| Ipv6Addr::from(rail.gid).to_bits();
    (number(one) ^ number(other)).leading_zeros()
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Random;
    use ringfold_topology::fabric::Place;
    use ringfold_types::Rank;
    use ringfold_types::limits::RAILS_MAX;

    use super::*;
    use crate::proof::JobKey;
    use crate::rdma::card::{Label, digest};
    use crate::rdma::message::{Context, Message};

    fn roce(third: u8, last: u8) -> RailCard {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, third, 0, last]);
        RailCard { gid, mtu: 5, kind: GidKind::RoceV2, ..RailCard::default() }
    }

    /// The card of a port in a network of 24 bits.
    fn named(third: u8, last: u8, name: &str) -> RailCard {
        RailCard { prefix: 120, name: digest(name), ..roce(third, last) }
    }

    fn on(rail: u16, card: RailCard) -> RailCard {
        let label = Label { place: Some(Place { rail, plane: 0 }), ..card.label };
        RailCard { label, ..card }
    }

    fn liked(card: RailCard) -> RailCard {
        RailCard { label: Label { is_preferred: true, ..card.label }, ..card }
    }

    fn crossing(card: RailCard) -> RailCard {
        RailCard { label: Label { crosses: true, ..card.label }, ..card }
    }

    /// The pairs that carry data.
    fn pairs(lower: &[RailCard], higher: &[RailCard]) -> Vec<(usize, usize)> {
        choose(lower, higher).main
    }

    fn sorted(lower: &[RailCard], higher: &[RailCard]) -> Vec<(usize, usize)> {
        let mut found = pairs(lower, higher);
        found.sort_unstable();
        found
    }

    #[test]
    fn rails_of_one_subnet_meet() {
        let lower = [roce(10, 1), roce(11, 1), roce(12, 1)];
        let higher = [roce(11, 2), roce(12, 2), roce(10, 2)];
        assert_eq!(sorted(&lower, &higher), [(0, 2), (1, 0), (2, 1)]);
    }

    #[test]
    fn ports_that_cannot_connect_do_not_pair() {
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
    fn on_infiniband_rails_meet_by_name_and_then_in_order() {
        let port = |last: u8| RailCard { kind: GidKind::InfiniBand, ..roce(1, last) };
        assert_eq!(pairs(&[port(9), port(1)], &[port(2), port(8)]), [(0, 0), (1, 1)]);
        let port = |name| RailCard { name: digest(name), ..port(1) };
        let lower = ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"].map(port);
        let higher = ["mlx5_1:1", "mlx5_2:1"].map(port);
        assert_eq!(sorted(&lower, &higher), [(1, 0), (2, 1)], "one is missing");
        let higher = ["mlx5_2:1", "ib0:1", "ib1:1"].map(port);
        assert_eq!(sorted(&lower, &higher), [(0, 1), (1, 2), (2, 0)], "some have other names");
    }

    /// Addresses of one network tell nothing about rails.
    #[test]
    fn in_a_flat_subnet_names_decide() {
        let host = |first: u8| {
            (0..8).map(move |at| named(10, first + at, &format!("mlx5_{at}:1"))).collect::<Vec<_>>()
        };
        let straight: Vec<_> = (0..8).map(|at| (at, at)).collect();
        assert_eq!(sorted(&host(1), &host(9)), straight);
        let mut without = host(9);
        without.remove(2);
        let expected = [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6)];
        assert_eq!(sorted(&host(1), &without), expected);
    }

    #[test]
    fn ports_stay_in_their_subnet_where_it_has_a_partner() {
        let lower = [named(10, 1, "a:1"), named(11, 1, "b:1")];
        let higher = [named(11, 2, "a:1"), named(12, 2, "b:1")];
        assert_eq!(pairs(&lower, &higher[..1]), [(1, 0)], "not by name");
        assert_eq!(pairs(&lower, &higher), [(1, 0), (0, 1)], "routers may join the others");
        let routed = [named(12, 2, "a:1"), named(13, 2, "b:1")];
        assert_eq!(pairs(&lower, &routed).len(), 2, "routers may join them");
        let longer = RailCard { prefix: 121, ..higher[0] };
        assert_eq!(pairs(&lower[1..], &[longer, higher[0]]), [(0, 1)], "other prefix lengths");
    }

    #[test]
    fn equal_labels_pair_whatever_the_names_and_subnets_are() {
        let lower = [on(0, named(10, 1, "a:1")), on(1, named(11, 1, "b:1"))];
        let higher = [on(1, named(10, 2, "a:1")), on(0, named(11, 2, "b:1"))];
        assert_eq!(sorted(&lower, &higher), [(0, 1), (1, 0)]);
        assert_eq!(pairs(&lower[..1], &higher[..1]), [], "one subnet, two rails");
        let plane = |plane| {
            let label = Label { place: Some(Place { rail: 0, plane }), ..Label::default() };
            crossing(RailCard { label, ..roce(10, 1) })
        };
        assert_eq!(pairs(&[plane(0), plane(1)], &[plane(1)]), [(1, 0)]);
        assert_eq!(pairs(&[plane(0)], &[plane(1)]), [], "planes never meet");
    }

    #[test]
    fn labels_are_no_hindrance_where_the_other_rank_has_none() {
        let lower = [on(3, named(10, 1, "a:1")), on(5, named(11, 1, "b:1"))];
        let higher = [named(11, 2, "a:1"), named(10, 2, "b:1")];
        assert_eq!(sorted(&lower, &higher), [(0, 1), (1, 0)]);
    }

    #[test]
    fn rails_cross_only_if_both_ranks_know_that_it_works_and_share_none() {
        let here = [on(0, roce(10, 1)), on(1, roce(11, 1))];
        let there = [on(2, roce(10, 2)), on(3, roce(11, 2))];
        let [here_too, there_too] = [here, there].map(|cards| cards.map(crossing));
        assert!(pairs(&here, &there).is_empty());
        assert!(pairs(&here_too, &there).is_empty() && pairs(&here, &there_too).is_empty());
        assert_eq!(sorted(&here_too, &there_too), [(0, 0), (1, 1)]);
        let common = [there_too[0], crossing(on(1, roce(11, 2)))];
        assert_eq!(pairs(&here_too, &common), [(1, 1)]);
    }

    #[test]
    fn ranks_share_out_the_ports_that_they_open() {
        let host = |last: u8, likes: &[u16]| {
            let port = |rail: u16| {
                let card = on(rail, roce(10, last));
                if likes.contains(&rail) { liked(card) } else { card }
            };
            (0..4).map(port).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&host(1, &[2]), &host(2, &[2])), [(2, 2)], "both prefer it");
        assert_eq!(sorted(&host(1, &[2]), &host(2, &[1])), [(1, 1), (2, 2)], "one does");
        assert_eq!(pairs(&host(1, &[2, 3]), &host(2, &[3, 0])), [(3, 3)]);
        assert_eq!(pairs(&host(1, &[2]), &host(2, &[])), [(2, 2)], "the other likes all");
        assert_eq!(pairs(&host(1, &[]), &host(2, &[])).len(), 4);
        let without = &host(1, &[3])[..3];
        assert_eq!(pairs(&host(1, &[3])[3..], &[without, &host(2, &[])[3..]].concat()), [(0, 3)]);
        assert_eq!(pairs(&host(1, &[3]), without).len(), 2, "no pair is preferred by one alone");
    }

    /// Storage NICs share a subnet, and each of the others has a subnet of its own behind a router.
    #[test]
    fn a_common_subnet_keeps_no_other_ports_apart() {
        let host = |host: u8| {
            let routed = (0..8).map(move |at| {
                let card = named(100 + 2 * at + host, 1, &format!("mlx5_{at}:1"));
                RailCard { prefix: 127, ..card }
            });
            routed.chain([named(10, 1 + host, "mlx5_8:1")]).collect::<Vec<_>>()
        };
        let straight: Vec<_> = (0..9).map(|at| (at, at)).collect();
        assert_eq!(sorted(&host(0), &host(1)), straight);
    }

    #[test]
    fn one_more_pair_is_a_spare() {
        let host = |likes: &[u16]| {
            let port = |rail: u16| {
                let card = on(rail, roce(10, 1));
                if likes.contains(&rail) { liked(card) } else { card }
            };
            (0..4).map(port).collect::<Vec<_>>()
        };
        let spare = |one: &[u16], other: &[u16]| choose(&host(one), &host(other)).spare;
        assert_eq!(spare(&[2], &[2]), Some((0, 0)));
        assert_eq!(spare(&[2, 3], &[3, 0]), Some((0, 0)), "one prefers it");
        assert_eq!(spare(&[1, 3], &[3, 1, 2]), Some((2, 2)), "one prefers it");
        assert_eq!(spare(&[], &[]), None, "all carry data");
        assert_eq!(spare(&[2], &[1]), None, "each has two pairs");
        assert_eq!([&[][..], &[2], &[0, 1, 2, 3]].map(|likes| most(&host(likes))), [4, 2, 4]);
    }

    /// Preferences do not separate ranks that may have few pairs.
    #[test]
    fn ranks_with_little_budget_tell_of_the_same_rails() {
        let host = |like: usize| {
            let card = |at: usize| {
                let card = on(u16::try_from(7 - at).unwrap(), roce(10, 1));
                if at == like { liked(card) } else { card }
            };
            (0..8).map(card).collect::<Vec<_>>()
        };
        let cards = |announced: Vec<(usize, RailCard)>| {
            announced.into_iter().map(|it| it.1).collect::<Vec<_>>()
        };
        let [one, other] = [3, 5].map(|like| announced(host(like), 1));
        assert_eq!((one[0].0, other[0].0), (7, 7), "of rail 0");
        assert_eq!(pairs(&cards(one), &cards(other)), [(0, 0)]);
        assert_eq!(cards(announced(host(3), 2)), host(3), "as many pairs as it would use");
        assert!(announced(host(3), 0).is_empty());
    }

    /// The cards as the other rank gets them.
    fn heard(cards: &[RailCard]) -> Vec<RailCard> {
        let key = JobKey::new([1; 32]);
        let context = Context { key: &key, from: Rank(3), to: Rank(4), count: 0 };
        let announced = Message::Rails { rails: cards.to_vec(), queue_pairs: 1 }.encode(context);
        let Ok(Message::Rails { rails, .. }) = Message::decode(&announced, context) else {
            panic!("another message")
        };
        rails
    }

    /// The evidence that tells rails apart.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Evidence {
        Labels,
        Subnets,
        /// Names tell rails apart, because all ports are in one subnet.
        Names,
        Nothing,
    }

    /// A host's ports with the rails that their cables lead to.
    fn host(
        random: &mut Random,
        number: u8,
        rails: usize,
        evidence: Evidence,
    ) -> Vec<(usize, RailCard)> {
        let [is_renamed, is_renumbered] = [random.chance(50), random.chance(50)];
        let mut left: Vec<usize> = (0..rails).collect();
        let mut ports = Vec::new();
        while !left.is_empty() {
            let next = if is_renumbered { random.below(left.len()) } else { 0 };
            let rail = left.remove(next);
            if random.chance(15) {
                continue;
            }
            let index = u8::try_from(rail).unwrap();
            let name = match evidence {
                Evidence::Names => format!("mlx5_{rail}:1"),
                _ if is_renamed => format!("roce{}:1", random.below(20)),
                _ => format!("mlx5_{}:1", ports.len()),
            };
            let card = match evidence {
                Evidence::Labels => {
                    on(index.into(), named(10, u8::try_from(random.below(256)).unwrap(), &name))
                }
                Evidence::Subnets => named(index, number, &name),
                _ => named(10, number * 16 + index, &name),
            };
            ports.push((rail, card));
        }
        ports
    }

    /// Hosts have NICs that are missing, renamed or in another order.
    #[test]
    fn no_pair_crosses_rails_where_there_is_evidence() {
        let seed = u64::from(std::process::id()) << 32 | 19;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for round in 0..10_000 {
            let kinds = [Evidence::Labels, Evidence::Subnets, Evidence::Names, Evidence::Nothing];
            let evidence = kinds[random.below(kinds.len())];
            let rails = 1 + random.below(RAILS_MAX);
            let hosts = [1, 2].map(|number| host(&mut random, number, rails, evidence));
            let [lower, higher] = &hosts;
            let cards = hosts.each_ref().map(|host| host.iter().map(|it| it.1).collect::<Vec<_>>());
            let found = pairs(&cards[0], &cards[1]);
            let about = format!("seed {seed}, round {round}, {evidence:?}: {lower:?} {higher:?}");
            let is_common = |port: &&(usize, RailCard)| higher.iter().any(|it| it.0 == port.0);
            let common = lower.iter().filter(is_common).count();
            let crossed = found.iter().filter(|pair| lower[pair.0].0 != higher[pair.1].0).count();
            let most = lower.len().min(higher.len());
            match evidence {
                Evidence::Labels => assert_eq!((found.len(), crossed), (common, 0), "{about}"),
                // Ports whose subnet the other host lacks may have a router between them.
                Evidence::Subnets => {
                    assert_eq!((found.len(), crossed), (most, most - common), "{about}");
                }
                Evidence::Names => {
                    let straight = found.len() - crossed;
                    assert_eq!((found.len(), straight), (most, common), "{about}");
                }
                Evidence::Nothing => assert_eq!(found.len(), most, "{about}"),
            }
            let announced = [0, 1].map(|rank| heard(&cards[1 - rank]));
            assert_eq!(pairs(&cards[0], &announced[0]), pairs(&announced[1], &cards[1]), "{about}");

            let likes = cards.map(|cards| {
                let like = |card| if random.chance(20) { liked(card) } else { card };
                cards.into_iter().map(like).collect::<Vec<_>>()
            });
            let fewer = pairs(&likes[0], &likes[1]);
            assert_eq!(fewer.is_empty(), found.is_empty(), "{about}");
            assert!(fewer.iter().all(|pair| found.contains(pair)), "{about}");
        }
    }
}
