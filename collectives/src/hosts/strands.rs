//! The blocks of a host's ranks, divided among its carriers.
//!
//! A carrier of a shard carries the block of its own rank. The block of a rank that carries no
//! shard is cut into as many parts as there are shards, one for each carrier. A *strand* is all
//! that one carrier of a host carries. Where each rank is a carrier, it is one block.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Rank, Slice};

use super::price::{Within, between, overlapped};
use super::{Hosts, Rail, Spread};
use crate::algorithm::Algorithm;
use crate::chunk::blocks_of;
use crate::cost::bill::Bill;

/// The strands of all hosts.
pub(crate) struct Strands {
    /// By place of the host and by shard: the runs of elements, in order. No two are adjacent.
    runs: Vec<Vec<Vec<Slice>>>,
}

/// The part of a block that the carrier of `shard` carries, if the block belongs to the rank at
/// place `at` of its team.
pub(crate) fn cut(block: Slice, shards: usize, at: usize, shard: usize) -> Slice {
    if at >= shards {
        blocks_of(block, shards, shard..shard + 1)
    } else if at == shard {
        block
    } else {
        block.take(0)
    }
}

/// The block of `count` elements of `rank`.
pub(crate) fn block_of(buffer: Buffer, rank: Rank, count: usize) -> Slice {
    Slice::new(buffer, rank.index() * count, count)
}

/// The elements that two slices of a buffer have in common.
pub(crate) fn common(a: Slice, b: Slice) -> Slice {
    let start = a.offset.max(b.offset);
    Slice { offset: start, len: a.end().min(b.end()).saturating_sub(start), ..a }
}

/// Elements of the longest strand, and of all strands of a shard together, in blocks of `count`.
pub(crate) fn lens(count: usize, layout: &Layout, shards: usize) -> [usize; 2] {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let strands = |hosts: usize, ranks: usize| {
        hosts * count + (ranks - hosts * shards) * count.div_ceil(shards)
    };
    [strands(1, most), strands(hosts, layout.size())]
}

/// The slices in the same order, with adjacent ones as one.
fn joined(slices: impl IntoIterator<Item = Slice>) -> Vec<Slice> {
    let mut runs: Vec<Slice> = Vec::new();
    for slice in slices {
        match runs.last_mut() {
            Some(run) if run.end() == slice.offset => run.len += slice.len,
            _ => runs.push(slice),
        }
    }
    runs
}

impl Strands {
    /// The strands of blocks of `count` elements of `buffer`.
    pub(crate) fn new(hosts: &Hosts<'_>, buffer: Buffer, count: usize) -> Self {
        let strand = |team: &[Rank], shard: usize| {
            let others = (hosts.shards..team.len()).chain([shard]);
            let cut = |at: usize| cut(block_of(buffer, team[at], count), hosts.shards, at, shard);
            let mut cuts: Vec<Slice> = others.map(cut).filter(|it| it.len > 0).collect();
            cuts.sort_unstable_by_key(|it| it.offset);
            joined(cuts)
        };
        let of_host = |place| {
            let team = hosts.team(place);
            (0..hosts.shards).map(|shard| strand(&team, shard)).collect()
        };
        Self { runs: (0..hosts.count()).map(of_host).collect() }
    }

    /// The runs of a strand.
    pub(crate) fn runs(&self, host: usize, shard: usize) -> &[Slice] {
        &self.runs[host][shard]
    }

    /// The runs of all strands of a shard, in the order of their hosts.
    pub(crate) fn packed(&self, shard: usize) -> Vec<Slice> {
        joined((0..self.runs.len()).flat_map(|host| self.runs(host, shard)).copied())
    }

    /// Number of runs of the strand of a host that has most.
    pub(crate) fn most_runs(&self, host: usize) -> usize {
        self.runs[host].iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Elements of the longest run.
    pub(crate) fn longest(&self) -> usize {
        let runs = self.runs.iter().flatten().flatten();
        runs.map(|run| run.len).max().unwrap_or(0)
    }

    /// Elements of a strand.
    pub(crate) fn len(&self, host: usize, shard: usize) -> usize {
        self.runs(host, shard).iter().map(|run| run.len).sum()
    }

    /// The runs and the elements of all strands of a shard.
    pub(crate) fn of_shard(&self, shard: usize) -> (usize, usize) {
        (0..self.runs.len()).fold((0, 0), |(runs, elements), host| {
            (runs + self.runs(host, shard).len(), elements + self.len(host, shard))
        })
    }
}

/// The ways to spread a call, with `most` shards at most.
pub(crate) fn ways(layout: &Layout, most: usize) -> Vec<Spread> {
    let carriers = layout.carriers().len().clamp(1, most);
    let around = Spread { shards: carriers, rail: Rail::Ring };
    if layout.hosts() <= 1 {
        return alloc::vec![around];
    }
    let exchange = |shards| Spread { shards, rail: Rail::Exchange };
    alloc::vec![exchange(1), exchange(carriers), around]
}

/// The bill of a call whose strands go from host to host by exchanges or around a ring, by these
/// `algorithms`. Within a host it takes `steps` steps, and the busiest rank combines `combined`
/// times the strands of a shard.
pub(crate) fn bill(
    algorithms: [&Algorithm; 2],
    call: &Call,
    layout: &Layout,
    &Spread { shards, rail }: &Spread,
    chunk: usize,
    [steps, combined]: [usize; 2],
) -> Bill {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let [strand, all] = lens(call.count, layout, shards);
    let is_ring = rail == Rail::Ring;
    let turns = if is_ring { hosts } else { 1 };
    let of_rail = Call { count: strand, ..*call };
    let algorithm = algorithms[usize::from(is_ring)];
    let between = between(algorithm, &of_rail, layout, shards, chunk);
    // Before an exchange of sums, a rank packs its inputs even if it is alone on its host.
    if most == 1 && (is_ring || combined == 0) {
        return between;
    }
    let whole = call.count * layout.size();
    // Inputs for the strands of each host are apart, unless one carrier has all of them.
    let runs = if is_ring || combined > 0 && shards > 1 { hosts } else { 1 };
    let within = Within {
        steps,
        messages: (most - 1).max(shards) * runs,
        moved: ((most - 1) * all).max(whole),
        average: whole,
        combined: combined * all,
    };
    overlapped(&between, &within.bill(call, layout, between.switch_ps, chunk), turns)
}
