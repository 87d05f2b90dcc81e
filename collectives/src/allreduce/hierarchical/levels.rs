//! The levels over which a call is spread, and the flat algorithm of the last one.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::allreduce::{halving_doubling, recursive_doubling, ring};
use crate::flat::Flat;

/// Bytes that a shard has at least: below that, the messages of one more rank cost a host more than
/// it spares the others.
const SHARD_BYTES: usize = 4 * 1024;

/// Hosts of a leaf group up to which carriers send to all others there.
const GROUP_MAX: usize = 64;

/// The flat algorithms by which the carriers of a part may reduce it. Of two that cost the same,
/// the first one is chosen.
pub(super) const RAILS: [&Flat; 3] =
    [&recursive_doubling::FLAT, &halving_doubling::FLAT, &ring::FLAT];

/// How a call is spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    pub(super) hosts: usize,
    /// Ranks of the host that has most.
    pub(super) most: usize,
    /// Shards, and so carriers of a host.
    pub(super) shards: usize,
    /// Leaf groups, if they are a level.
    pub(super) groups: Option<Groups>,
    /// The algorithm by which the carriers of a part reduce it.
    pub(super) rail: &'static Flat,
    /// The call of the carriers of a part.
    pub(super) rail_call: Call,
}

/// The sizes of leaf groups that are a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    pub(super) count: usize,
    /// Hosts of the group that has most,
    pub(super) most: usize,
    /// and of the one that has fewest: parts of a shard.
    pub(super) parts: usize,
}

impl Groups {
    /// The groups, if there are several of several hosts.
    fn of(groups: &[Vec<usize>]) -> Option<Self> {
        let sizes = || groups.iter().map(Vec::len);
        let (most, parts) = (sizes().max()?, sizes().min()?);
        let is_level = groups.len() > 1 && (2..=GROUP_MAX).contains(&most);
        is_level.then_some(Self { count: groups.len(), most, parts })
    }
}

impl Levels {
    /// All ways to spread `call`: between hosts at once, or between leaf groups if there are any.
    pub(super) fn all<'a>(
        call: &'a Call,
        layout: &'a Layout,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let groups = Groups::of(&layout.leaf_groups()).map(Some);
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

    /// Ranks that reduce a part of a shard among each other.
    pub(super) fn units(&self) -> usize {
        self.groups.map_or(self.hosts, |groups| groups.count)
    }

    /// Parts of a shard.
    pub(super) fn parts(&self) -> usize {
        self.groups.map_or(1, |groups| groups.parts)
    }

    /// Elements of each shard that are reduced together, where pipelines pass on `chunk`.
    pub(super) fn section(&self, chunk: usize) -> usize {
        self.parts() * (self.rail.section)(self.units(), chunk)
    }
}
