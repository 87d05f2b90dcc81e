//! The pairs of ports by which two ranks talk. Both ranks compute them from the same cards, so they
//! agree without another message.
//!
//! 1. Ports with equal labels pair, and so do ports without labels.
//! 2. Where that finds nothing, a labelled port pairs with one that has no label.
//! 3. Where that finds nothing, ports on two rails of one plane pair if both cross.
//!
//! Among several candidates, ports of one subnet come first, then ports of equal names, then the
//! order of the ports. A port without a label that has a partner in its subnet pairs with no port
//! of another subnet. Of all pairs the ranks use those that both prefer, else those that one
//! prefers. Of the rest they keep one as a spare, which carries data while no other pair does.

use std::cmp::Reverse;
use std::net::Ipv6Addr;

use super::address::subnet;
use super::message::RailCard;
use super::sys::GidKind;

/// Pairs of ports, each of one of the lower rank and one of the higher. No port is in two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The pairs that carry data.
    pub(super) main: Vec<(usize, usize)>,
    /// The pair that carries data while no other does.
    pub(super) spare: Option<(usize, usize)>,
}

/// Returns the pairs by which two ranks talk.
pub(super) fn choose(lower: &[RailCard], higher: &[RailCard]) -> Choice {
    [is_same_place, is_half_labelled, is_crossing]
        .into_iter()
        .map(|may_pair| matched(lower, higher, may_pair))
        .find(|pairs| !pairs.is_empty())
        .map(|pairs| preferred(pairs, lower, higher))
        .unwrap_or_default()
}

/// Returns the most pairs that a rank has with a peer: of its preferred ports and a spare one, or
/// of all where it prefers none.
pub(super) fn most(cards: &[RailCard]) -> usize {
    match cards.iter().filter(|card| card.label.is_preferred).count() {
        0 => cards.len(),
        preferred => cards.len().min(preferred + 1),
    }
}

/// Returns the ports that a rank tells a peer of, with their places. Where it may have fewer pairs
/// than it would use, both ranks must tell of the same rails, so preferences do not count.
pub(super) fn told(cards: Vec<RailCard>, pairs: usize) -> Vec<(usize, RailCard)> {
    let is_short = pairs < most(&cards);
    let mut told: Vec<_> = cards.into_iter().enumerate().collect();
    if is_short {
        told.sort_by_key(|(_, card)| (card.label.place.is_none(), card.label.place));
        told.truncate(pairs);
    }
    told
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

/// How well two ports suit each other, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nearness {
    /// Leading address bits that differ from the best case. Ports of one subnet are all alike.
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

/// Returns the leading bits that both addresses have in common. On InfiniBand those of the subnet
/// count, and the rest names the port.
fn shared_bits(one: &RailCard, other: &RailCard) -> u32 {
    if one.kind == GidKind::InfiniBand {
        return (subnet(&one.gid) ^ subnet(&other.gid)).leading_zeros();
    }
    let number = |rail: &RailCard| Ipv6Addr::from(rail.gid).to_bits();
    (number(one) ^ number(other)).leading_zeros()
}

#[cfg(test)]
#[path = "pairing_tests.rs"]
mod tests;
