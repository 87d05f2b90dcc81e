//! Trees of hosts below that of a root, for shards of a buffer.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Call, Rank};

use super::price::{Within, between, overlapped};
use super::{Hosts, Rail, Spread};
use crate::algorithm::Algorithm;
use crate::cost::bill::Bill;
use crate::pattern::tree;

/// The hosts in a tree, with the carriers of shards.
pub(crate) struct Rooted<'a> {
    pub(crate) hosts: Hosts<'a>,
    pub(crate) root: Rank,
    rail: Rail,
}

impl<'a> Rooted<'a> {
    pub(crate) fn new(call: &Call, layout: &'a Layout, spread: &Spread) -> Self {
        let hosts = Hosts::from_root(layout, spread.shards, call.root);
        Self { hosts, root: call.root, rail: spread.rail }
    }

    /// The place of the host above that at `place`. `None` for the root's host.
    pub(crate) fn above(&self, place: usize) -> Option<usize> {
        match self.rail {
            Rail::Chain => place.checked_sub(1),
            _ => self.in_tree(place).parent.map(Rank::index),
        }
    }

    /// The places of the hosts below that at `place`, the smallest subtree first.
    pub(crate) fn below(&self, place: usize) -> Vec<usize> {
        match self.rail {
            Rail::Chain => (place + 1..self.hosts.count()).take(1).collect(),
            _ => self.in_tree(place).children.iter().map(|child| child.rank.index()).collect(),
        }
    }

    fn in_tree(&self, place: usize) -> tree::Place {
        tree::place(Rank::at(place), Rank(0), self.hosts.count())
    }

    /// The carrier of `shard` on the root's host, unless that is the root itself.
    pub(crate) fn near_root(&self, shard: usize) -> Option<Rank> {
        Some(self.hosts.rail(shard)[0]).filter(|carrier| *carrier != self.root)
    }
}

/// The ways to spread a call with a root, with `most` shards at most.
pub(crate) fn ways(layout: &Layout, most: usize) -> Vec<Spread> {
    let carriers = layout.carriers().len().clamp(1, most);
    let of = |shards| [Rail::Tree, Rail::Chain].map(|rail| Spread { shards, rail });
    if layout.hosts() <= 1 {
        return of(1)[..1].to_vec();
    }
    let mut ways = of(1).to_vec();
    ways.extend(of(carriers).into_iter().filter(|_| carriers > 1));
    ways
}

/// The most hosts between the root's host and another, that one included.
pub(crate) const fn depth(hosts: usize, rail: Rail) -> usize {
    match rail {
        Rail::Chain => hosts - 1,
        _ => tree::height(hosts),
    }
}

/// The bill of a call whose shards take a tree or a chain of hosts, by these `algorithms`. Within a
/// host it takes `steps` steps, and the busiest rank combines `combined` times a shard.
pub(crate) fn bill(
    algorithms: [&Algorithm; 2],
    call: &Call,
    layout: &Layout,
    &Spread { shards, rail }: &Spread,
    chunk: usize,
    [steps, combined]: [usize; 2],
) -> Bill {
    let (_, most) = layout.ranks_per_host();
    let shard = call.count.div_ceil(shards);
    let algorithm = algorithms[usize::from(rail == Rail::Chain)];
    let of_rail = Call { count: shard, root: Rank(0), ..*call };
    let between = between(algorithm, &of_rail, layout, shards, chunk);
    if most == 1 {
        return between;
    }
    let pieces = shard.div_ceil(chunk).max(1);
    let within = Within {
        steps,
        messages: (most - 1).max(shards) * pieces,
        moved: ((most - 1) * shard).max(call.count),
        average: call.count,
        combined: combined * shard,
    };
    overlapped(&between, &within.bill(call, layout, between.switch_ps, chunk), pieces)
}
