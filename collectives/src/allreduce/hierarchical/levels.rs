//! The levels over which a call is spread, and the flat algorithm of the highest level.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::allreduce::{halving_doubling, recursive_doubling, ring};
use crate::connections::most_away;
use crate::flat::Flat;

/// Bytes that a shard has at least. With less, the messages of one more carrier cost its host more
/// than they save the other carriers.
const SHARD_BYTES: usize = 4 * 1024;

/// The flat algorithms by which the carriers of a part may reduce it. The first of equally cheap
/// ones is used.
pub(super) const RAILS: [&Flat; 3] =
    [&recursive_doubling::FLAT, &halving_doubling::FLAT, &ring::FLAT];

/// The way in which a call is spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    pub(super) hosts: usize,
    /// Ranks on the fullest host.
    pub(super) most: usize,
    /// Number of shards, and so of carriers on each host.
    pub(super) shards: usize,
    /// The leaf groups, if they are a level.
    pub(super) groups: Option<Groups>,
    /// The algorithm by which the carriers of a part reduce it.
    pub(super) rail: &'static Flat,
    /// The call that the carriers of a part perform.
    pub(super) rail_call: Call,
}

/// The sizes of leaf groups, where these are a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    pub(super) count: usize,
    /// Hosts of the largest group.
    pub(super) most: usize,
    /// Hosts of the smallest group: the number of parts of a shard.
    pub(super) parts: usize,
}

impl Groups {
    /// The groups, if there are several and the largest has several hosts. Each carrier sends to
    /// all others of its group and to some of other groups, and may not have too many links.
    fn of(groups: &[Vec<usize>]) -> Option<Self> {
        let sizes = || groups.iter().map(Vec::len);
        let (most, parts) = (sizes().max()?, sizes().min()?);
        let links = most - 1 + groups.len().next_power_of_two().ilog2() as usize;
        let has_few_links = links <= most_away(sizes().sum());
        let is_level = groups.len() > 1 && most > 1 && has_few_links;
        is_level.then_some(Self { count: groups.len(), most, parts })
    }
}

impl Levels {
    /// All ways to spread `call`: without a level of leaf groups, and with one if there are groups.
    pub(super) fn all<'a>(
        call: &'a Call,
        layout: &'a Layout,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let groups = Groups::of(layout.leaf_groups()).map(Some);
        let groups = core::iter::once(None).chain(groups);
        let both = groups.flat_map(|groups| RAILS.map(|rail| (groups, rail)));
        both.map(|(groups, rail)| Self::new(call, layout, groups, rail))
    }

    pub(super) fn new(
        call: &Call,
        layout: &Layout,
        groups: Option<Groups>,
        rail: &'static Flat,
    ) -> Self {
        let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
        let carriers = layout.carriers().len();
        let shards = (call.count * call.data_type.bytes() / SHARD_BYTES).clamp(1, carriers.max(1));
        let count = call.count / shards / groups.map_or(1, |groups| groups.parts);
        Self { hosts, most, shards, groups, rail, rail_call: Call { count, ..*call } }
    }

    /// Number of ranks that reduce a part of a shard together.
    pub(super) fn units(&self) -> usize {
        self.groups.map_or(self.hosts, |groups| groups.count)
    }

    /// Number of parts of a shard.
    pub(super) fn parts(&self) -> usize {
        self.groups.map_or(1, |groups| groups.parts)
    }

    /// Elements of each shard that are reduced together, if pipelines pass on `chunk` at a time.
    pub(super) fn section(&self, chunk: usize) -> usize {
        self.parts() * (self.rail.section)(self.units(), chunk)
    }
}
