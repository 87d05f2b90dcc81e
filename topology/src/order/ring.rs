//! A ring through all hosts. The last rank of a host and the first rank of the next host share a
//! rail.
//!
//! If each rank prefers a rail of its own, the ring leaves a host by another rail than it enters
//! it: with two rails, hosts take them in turn. Dynamic programming finds a chain of hosts, over
//! the rank by which it leaves each host. The chain is closed for some ranks of the last host.

use ringfold_types::Rank;

use crate::layout::reach::RankReach;

/// Number of ranks of the last host for which the ring is closed, until one closes without cost.
const CLOSED_MAX: usize = 16;

/// More than any chain costs.
const FORBIDDEN: u64 = 1 << 40;

/// The ring through `hosts`, which are in fabric order. Where rails are unknown, ranks of a host
/// keep rank order.
pub(crate) fn ring(hosts: &[&[Rank]], reach: &[RankReach]) -> Vec<Rank> {
    if hosts.len() < 2 || reach.is_empty() {
        return hosts.concat();
    }
    let doors: Vec<Vec<Rank>> = hosts.iter().map(|ranks| doors(ranks, reach)).collect();
    let mut best: Option<(u64, HostEnds)> = None;
    for end in doors.last().into_iter().flatten().take(CLOSED_MAX) {
        let chain = Chain::new(hosts, &doors, reach, Begin::After(*end));
        let exit = chain.left.iter().position(|(_, rank)| rank == end).unwrap_or(0);
        let cost = chain.left[exit].0;
        if best.as_ref().is_none_or(|best| cost < best.0) {
            best = Some((cost, chain.ends(&doors, exit)));
        }
        if cost == 0 {
            break;
        }
    }
    best.map_or_else(|| hosts.concat(), |(_, ends)| ranks_along(hosts, &ends))
}

/// A chain through `hosts` that begins with `first`, a rank of the first host.
pub(crate) fn chain(hosts: &[&[Rank]], reach: &[RankReach], first: Rank) -> Vec<Rank> {
    if hosts.len() < 2 || reach.is_empty() {
        let others = hosts.iter().copied().flatten().filter(|rank| **rank != first);
        return std::iter::once(first).chain(others.copied()).collect();
    }
    let mut doors: Vec<Vec<Rank>> = hosts.iter().map(|ranks| doors(ranks, reach)).collect();
    if !doors[0].contains(&first) {
        doors[0].push(first);
    }
    let chain = Chain::new(hosts, &doors, reach, Begin::With(first));
    let exit = (0..).zip(&chain.left).min_by_key(|(_, (cost, _))| *cost).map_or(0, |(at, _)| at);
    ranks_along(hosts, &chain.ends(&doors, exit))
}

/// The first and the last rank of every host.
type HostEnds = Vec<(Rank, Rank)>;

/// All ranks, those of a host from its first to its last.
fn ranks_along(hosts: &[&[Rank]], ends: &HostEnds) -> Vec<Rank> {
    let mut all = Vec::new();
    for (ranks, (first, last)) in hosts.iter().zip(ends) {
        all.push(*first);
        all.extend(ranks.iter().filter(|rank| *rank != first && *rank != last));
        all.extend((first != last).then_some(*last));
    }
    all
}

/// Ranks by which a chain may enter and leave a host: of those with equal rails, the first two.
fn doors(ranks: &[Rank], reach: &[RankReach]) -> Vec<Rank> {
    let mut sorted: Vec<(RankReach, Rank)> =
        ranks.iter().map(|rank| (reach[rank.index()], *rank)).collect();
    sorted.sort_unstable();
    let is_third = |at: usize| at >= 2 && sorted[at].0 == sorted[at - 2].0;
    let mut doors: Vec<Rank> =
        (0..sorted.len()).filter(|at| !is_third(*at)).map(|at| sorted[at].1).collect();
    doors.sort_unstable();
    doors
}

/// A measure of how far two ranks are from sharing a rail that both prefer.
fn distance(from: RankReach, to: RankReach) -> u64 {
    let is_near = |a: RankReach, b: RankReach| a.prefers.meets(b.reaches);
    match (from, to) {
        _ if from.prefers.meets(to.prefers) => 0,
        _ if is_near(from, to) || is_near(to, from) => 1,
        _ if from.reaches.meets(to.reaches) => 2,
        // The message leaves its rail. That is worse than two rails that are merely not preferred.
        _ => 5,
    }
}

/// The beginning of a chain.
#[derive(Clone, Copy)]
enum Begin {
    /// Any rank of the first host, reached from this rank.
    After(Rank),
    /// This rank.
    With(Rank),
}

/// The cheapest chains through all hosts, one for each rank by which they may leave the last host.
struct Chain {
    /// By host, for each rank by which the chain leaves it: the rank by which the chain enters it,
    /// and the index of the exit of the host before.
    steps: Vec<Vec<(Rank, usize)>>,
    /// Each rank by which a chain leaves the last host, with the cost of the chain up to it.
    left: Vec<(u64, Rank)>,
}

impl Chain {
    fn new(hosts: &[&[Rank]], doors: &[Vec<Rank>], reach: &[RankReach], begin: Begin) -> Self {
        let of = |rank: Rank| reach[rank.index()];
        let mut steps = Vec::new();
        let mut left: Vec<(u64, Rank)> = match begin {
            Begin::After(rank) | Begin::With(rank) => vec![(0, rank)],
        };
        for (at, (ranks, doors)) in hosts.iter().zip(doors).enumerate() {
            // The cost to enter by each rank, and the exit of the host before.
            let enter = |door: &Rank| match begin {
                Begin::With(first) if at == 0 => {
                    (if *door == first { 0 } else { FORBIDDEN }, 0, *door)
                }
                _ => {
                    let costs =
                        left.iter().map(|(cost, from)| cost + distance(of(*from), of(*door)));
                    let (cost, before) = costs.zip(0..).min().unwrap_or((FORBIDDEN, 0));
                    (cost, before, *door)
                }
            };
            let entered: Vec<(u64, usize, Rank)> = doors.iter().map(enter).collect();
            let is_apart = |a: Rank, b: Rank| a != b || ranks.len() == 1;
            let exits = doors.iter().map(|exit| {
                let ways = entered.iter().filter(|(_, _, door)| is_apart(*door, *exit));
                let cheapest = ways.min_by_key(|(cost, ..)| *cost).copied();
                let (cost, before, door) = cheapest.unwrap_or(entered[0]);
                ((cost, *exit), (door, before))
            });
            let (costs, ways) = exits.unzip();
            steps.push(ways);
            left = costs;
        }
        Self { steps, left }
    }

    /// The chain that leaves the last host by exit number `exit`.
    fn ends(&self, doors: &[Vec<Rank>], mut exit: usize) -> HostEnds {
        let mut ends = HostEnds::new();
        for (step, doors) in self.steps.iter().zip(doors).rev() {
            let (door, before) = step[exit];
            ends.push((door, doors[exit]));
            exit = before;
        }
        ends.reverse();
        ends
    }
}
