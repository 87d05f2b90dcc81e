//! The messages and bytes of a call that cross each level of a fabric: within hosts, within leaf
//! groups, across spines and across pods. Messages that change rails are counted too.
//!
//! Every algorithm states its messages (`Algorithm::crossing`), and `measured` counts those of
//! schedules.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use ringfold_topology::{Layout, Level, Order, Path, RankReach, Reach};
use ringfold_types::{Call, Rank};

use crate::schedule::{Form, Schedule, Step};

/// Some messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of messages.
    pub messages: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Load {
    fn add(&mut self, messages: u64, bytes: u64) {
        self.messages += messages;
        self.bytes += bytes;
    }
}

/// The messages of all ranks in one call, by the level that they cross.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossing {
    levels: [Load; Level::ALL.len()],
    /// Messages between ranks that have no rail in common. `at` counts them too.
    pub off_rail: Load,
    /// Messages between ranks that prefer no common rail, even if they share one. `at` counts them
    /// too.
    pub off_preferred: Load,
}

impl Crossing {
    /// The messages that cross `level` and no higher one.
    #[must_use]
    pub const fn at(&self, level: Level) -> Load {
        self.levels[level as usize]
    }

    /// The messages that cross spines or pods.
    #[must_use]
    pub fn across_spines(&self) -> Load {
        let mut load = self.at(Level::Pod);
        let Load { messages, bytes } = self.at(Level::Fabric);
        load.add(messages, bytes);
        load
    }

    fn add(&mut self, layout: &Layout, [from, to]: [Rank; 2], messages: u64, bytes: u64) {
        self.levels[layout.level(from, to) as usize].add(messages, bytes);
        if layout.leaves_rail(from, to) {
            self.off_rail.add(messages, bytes);
        }
        if layout.leaves_preferred(from, to) {
            self.off_preferred.add(messages, bytes);
        }
    }
}

/// Counts the messages that the schedules of all ranks send, for ranks placed as in `layout`.
/// Accesses to other ranks' memory are not messages.
#[must_use]
pub fn measured(schedules: &[Schedule], layout: &Layout) -> Crossing {
    let mut crossing = Crossing::default();
    for schedule in schedules {
        for step in schedule.lanes().iter().flatten() {
            if let Step::Send { to, src } = step {
                let form = Form::of(src.buffer).data_type(schedule.call());
                let bytes = (src.len * form.bytes()) as u64;
                crossing.add(layout, [schedule.rank(), *to], 1, bytes);
            }
        }
    }
    crossing
}

/// The messages of all ranks in one call, as an algorithm states them.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    pub(crate) call: &'a Call,
    pub(crate) layout: &'a Layout,
    /// The ranks that are named by their place here. If it is empty, all ranks have their own
    /// numbers.
    names: Vec<Rank>,
    crossing: Crossing,
    /// By rank, its peers in messages and signals. Empty unless the caller wants them.
    peers: Vec<BTreeSet<Rank>>,
}

impl<'a> Messages<'a> {
    /// No messages yet.
    pub(crate) fn new(call: &'a Call, layout: &'a Layout) -> Self {
        Self { call, layout, names: Vec::new(), crossing: Crossing::default(), peers: Vec::new() }
    }

    /// No messages yet, with a record of peers.
    pub(crate) fn with_peers(call: &'a Call, layout: &'a Layout) -> Self {
        Self { peers: alloc::vec![BTreeSet::new(); layout.size()], ..Self::new(call, layout) }
    }

    /// By rank, its peers in messages and signals, in rank order.
    pub(crate) fn into_peers(self) -> Vec<Vec<Rank>> {
        self.peers.into_iter().map(|peers| peers.into_iter().collect()).collect()
    }

    /// The levels that the messages cross.
    pub(crate) const fn crossing(&self) -> Crossing {
        self.crossing
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.layout.size()
    }

    /// All ranks, or all places.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.size()).map(Rank::at)
    }

    /// From now on, every rank is named by its place in `order`.
    pub(crate) fn in_order(&mut self, order: &Order) {
        self.names = order.ranks().to_vec();
    }

    /// Within `state`, a rank of `group` is named by its place there.
    pub(crate) fn among(&mut self, group: &[Rank], state: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.names, group.to_vec());
        state(self);
        self.names = outer;
    }

    /// The number of the rank that is named `rank` now.
    pub(crate) fn number(&self, rank: Rank) -> Rank {
        self.names.get(rank.index()).copied().unwrap_or(rank)
    }

    /// States one message of `elements` elements.
    pub(crate) fn send(&mut self, from: Rank, to: Rank, form: Form, elements: usize) {
        self.send_each(from, to, form, elements, 1);
    }

    /// States `messages` messages of `elements` elements each.
    pub(crate) fn send_each(
        &mut self,
        from: Rank,
        to: Rank,
        form: Form,
        elements: usize,
        messages: usize,
    ) {
        if elements > 0 && messages > 0 {
            let bytes = elements * form.data_type(self.call).bytes() * messages;
            let ends = [self.number(from), self.number(to)];
            self.crossing.add(self.layout, ends, messages as u64, bytes as u64);
            for [rank, peer] in [ends, [ends[1], ends[0]]] {
                self.peers.get_mut(rank.index()).map(|peers| peers.insert(peer));
            }
        }
    }

    /// States that every rank signals every other. That crosses no level, because they are on one
    /// host.
    pub(crate) fn all_signal(&mut self) {
        for (rank, peers) in self.peers.iter_mut().enumerate() {
            peers.extend((0..self.layout.size()).filter(|peer| *peer != rank).map(Rank::at));
        }
    }

    /// States that every rank sends every other `messages` messages of `elements` elements of the
    /// data type.
    ///
    /// Takes time in proportion to the number of ranks, and to the square of the number of
    /// different sets of rails.
    pub(crate) fn all_to_all(&mut self, elements: usize, messages: usize) {
        if elements == 0 {
            return;
        }
        self.all_signal();
        let bytes = (elements * Form::Element.data_type(self.call).bytes()) as u64;
        let pairs = Pairs::of(self.layout);
        let counts = [pairs.host, pairs.group, pairs.pod, pairs.fabric];
        let load = |pairs: u64| (pairs * messages as u64, pairs * messages as u64 * bytes);
        for (level, pairs) in self.crossing.levels.iter_mut().zip(counts) {
            let (messages, bytes) = load(pairs);
            level.add(messages, bytes);
        }
        let (messages, bytes) = load(pairs.off_rail);
        self.crossing.off_rail.add(messages, bytes);
        let (messages, bytes) = load(pairs.off_preferred);
        self.crossing.off_preferred.add(messages, bytes);
    }
}

/// Numbers of ordered pairs of different ranks, by their distance.
#[derive(Default)]
struct Pairs {
    host: u64,
    group: u64,
    pod: u64,
    fabric: u64,
    off_rail: u64,
    off_preferred: u64,
}

/// For each set of rails, the number of ranks that have it.
type Rails = BTreeMap<Reach, u64>;

impl Pairs {
    fn of(layout: &Layout) -> Self {
        let path = |rank: Rank| layout.path(layout.host(rank)).unwrap_or_default();
        // Without paths all hosts are in one group, and each is a machine of its own.
        let machine = |rank: Rank| match layout.path(layout.host(rank)) {
            Some(Path { machine, .. }) => machine,
            None => layout.host(rank),
        };
        let apart = |within: &dyn Fn(Rank) -> (u32, u32, u32), of: fn(RankReach) -> Reach| {
            let mut parts: BTreeMap<(u32, u32, u32), Rails> = BTreeMap::new();
            for rank in (0..layout.size()).map(Rank::at) {
                let rails = parts.entry(within(rank)).or_default();
                *rails.entry(of(layout.reach(rank))).or_default() += 1;
            }
            parts.values().fold((0, 0), |(pairs, apart), rails| {
                (pairs + all_pairs(rails), apart + pairs_apart(rails))
            })
        };
        let near = |within: &dyn Fn(Rank) -> (u32, u32, u32)| apart(within, |it| it.reaches);
        let (host, host_apart) = near(&|rank| (path(rank).pod, path(rank).group, machine(rank)));
        let (group, group_apart) = near(&|rank| (path(rank).pod, path(rank).group, 0));
        let (pod, _) = near(&|rank| (path(rank).pod, 0, 0));
        let (all, all_apart) = near(&|_| (0, 0, 0));
        let of_machine = |rank| (path(rank).pod, path(rank).group, machine(rank));
        let (_, host_other) = apart(&of_machine, |it| it.prefers);
        let (_, all_other) = apart(&|_| (0, 0, 0), |it| it.prefers);
        // Ports on other rails of a group are across spines.
        let crossing = group_apart - host_apart;
        Self {
            host,
            group: group - host - crossing,
            pod: pod - group + crossing,
            fabric: all - pod,
            off_rail: all_apart - host_apart,
            off_preferred: all_other - host_other,
        }
    }
}

fn all_pairs(rails: &Rails) -> u64 {
    let ranks: u64 = rails.values().sum();
    ranks * (ranks - 1)
}

/// Pairs of ranks that both know their rails and have none in common.
fn pairs_apart(rails: &Rails) -> u64 {
    let known = || rails.iter().filter(|(reach, _)| !reach.is_empty());
    let others = |(a, ranks): (&Reach, &u64)| {
        let apart = known().filter(|(b, _)| !a.meets(**b));
        ranks * apart.map(|(_, others)| others).sum::<u64>()
    };
    known().map(others).sum()
}
