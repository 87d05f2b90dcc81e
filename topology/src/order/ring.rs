//! A ring through all hosts, where the last rank of a host and the first of the next one share a
//! rail.
//!
//! A host is so left by another rail than it was entered by, where each rank prefers a rail of its
//! own: hosts with two rails take them in turn. A chain of hosts is found by dynamic programming
//! over the rank by which each host is left, and closed for some ranks of the last host.

use ringfold_types::Rank;

use crate::layout::RankReach;

/// Ranks of the last host for which the ring is closed, until one closes without cost.
const CLOSED_MAX: usize = 16;

/// The ring through `hosts`, each with its ranks, in fabric order. Unknown rails keep rank order
/// within hosts.
pub(crate) fn ring(hosts: &[&[Rank]], reach: &[RankReach]) -> Vec<Rank> {
    if hosts.len() < 2 || reach.is_empty() {
        return hosts.concat();
    }
    let doors: Vec<Vec<Rank>> = hosts.iter().map(|ranks| doors(ranks, reach)).collect();
    let mut best: Option<Chain> = None;
    for end in doors.last().into_iter().flatten().take(CLOSED_MAX) {
        let chain = Chain::closed_by(*end, hosts, &doors, reach);
        if best.as_ref().is_none_or(|best| chain.cost < best.cost) {
            best = Some(chain);
        }
        if best.as_ref().is_some_and(|best| best.cost == 0) {
            break;
        }
    }
    let Some(Chain { ways, .. }) = best else { return hosts.concat() };
    let mut ring = Vec::new();
    for (ranks, (first, last)) in hosts.iter().zip(ways) {
        ring.push(first);
        ring.extend(ranks.iter().filter(|rank| **rank != first && **rank != last));
        ring.extend((first != last).then_some(last));
    }
    ring
}

/// Ranks by which a host may be entered and left: of those with equal rails, the first two.
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

/// How far two ranks are from sharing a rail that both prefer.
fn distance(from: RankReach, to: RankReach) -> u64 {
    let is_near = |a: RankReach, b: RankReach| a.prefers.meets(b.reaches);
    match (from, to) {
        _ if from.prefers.meets(to.prefers) => 0,
        _ if is_near(from, to) || is_near(to, from) => 1,
        _ if from.reaches.meets(to.reaches) => 2,
        // It leaves its rail, which two that are merely not preferred do not outweigh.
        _ => 5,
    }
}

/// The first and the last rank of every host, and what they cost.
struct Chain {
    ways: Vec<(Rank, Rank)>,
    cost: u64,
}

impl Chain {
    /// The cheapest chain whose last host is left by `end`.
    fn closed_by(end: Rank, hosts: &[&[Rank]], doors: &[Vec<Rank>], reach: &[RankReach]) -> Self {
        let of = |rank: Rank| reach[rank.index()];
        // By host, for each rank by which it is left: the rank by which it is entered, and the one
        // by which the host before is left.
        let mut steps: Vec<Vec<(Rank, usize)>> = Vec::new();
        let mut left = vec![(0, end)];
        for (ranks, doors) in hosts.iter().zip(doors) {
            // What it costs to enter by each rank, and by which exit of the host before.
            let entered: Vec<(u64, usize, Rank)> = doors
                .iter()
                .map(|door| {
                    let costs =
                        left.iter().map(|(cost, from)| cost + distance(of(*from), of(*door)));
                    let (cost, before) = costs.zip(0..).min().unwrap_or((u64::MAX / 2, 0));
                    (cost, before, *door)
                })
                .collect();
            let is_apart = |a: Rank, b: Rank| a != b || ranks.len() == 1;
            let exits = doors.iter().map(|exit| {
                let ways = entered.iter().filter(|(_, _, door)| is_apart(*door, *exit));
                let (cost, before, door) =
                    ways.min_by_key(|(cost, ..)| *cost).copied().unwrap_or(entered[0]);
                ((cost, *exit), (door, before))
            });
            (left, steps) = {
                let (costs, ways): (Vec<_>, Vec<_>) = exits.unzip();
                steps.push(ways);
                (costs, steps)
            };
        }
        let mut exit = left.iter().position(|(_, rank)| *rank == end).unwrap_or(0);
        let cost = left[exit].0;
        let mut ways: Vec<(Rank, Rank)> = Vec::new();
        for (step, doors) in steps.iter().zip(doors).rev() {
            let (door, before) = step[exit];
            ways.push((door, doors[exit]));
            exit = before;
        }
        ways.reverse();
        Self { ways, cost }
    }
}
