//! The messages and bytes of a call that cross each level of a fabric: within hosts, within leaf
//! groups, across spines and across pods. Those that change rails are counted too.
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
    /// How many.
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

/// What all ranks together send across each level in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossing {
    levels: [Load; Level::ALL.len()],
    /// Messages between ranks that have no rail in common. They are part of the levels too.
    pub off_rail: Load,
    /// Messages between ranks that prefer no rail in common, even if they reach one. They are part
    /// of the levels too.
    pub off_preferred: Load,
}

impl Crossing {
    /// What crosses `level` and nothing above it.
    #[must_use]
    pub const fn at(&self, level: Level) -> Load {
        self.levels[level as usize]
    }

    /// What crosses spines or more.
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

/// What the schedules of all ranks send, where ranks are as `layout` says. What ranks of a host
/// read from each other's memory, or store there, is no message.
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
    /// The ranks that are called by their place here; all by their own numbers if it is empty.
    names: Vec<Rank>,
    crossing: Crossing,
    /// By rank, those that it exchanges messages or signals with; nothing unless they are wanted.
    peers: Vec<BTreeSet<Rank>>,
}

impl<'a> Messages<'a> {
    /// None yet.
    pub(crate) fn new(call: &'a Call, layout: &'a Layout) -> Self {
        Self { call, layout, names: Vec::new(), crossing: Crossing::default(), peers: Vec::new() }
    }

    /// None yet, of which the peers are wanted.
    pub(crate) fn with_peers(call: &'a Call, layout: &'a Layout) -> Self {
        Self { peers: alloc::vec![BTreeSet::new(); layout.size()], ..Self::new(call, layout) }
    }

    /// By rank, those that it exchanges messages or signals with, in rank order.
    pub(crate) fn into_peers(self) -> Vec<Vec<Rank>> {
        self.peers.into_iter().map(|peers| peers.into_iter().collect()).collect()
    }

    /// What they cross.
    pub(crate) const fn crossing(&self) -> Crossing {
        self.crossing
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.layout.size()
    }

    /// All ranks, or their places.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.size()).map(Rank::at)
    }

    /// Calls all ranks by their places in `order` from now on.
    pub(crate) fn in_order(&mut self, order: &Order) {
        self.names = order.ranks().to_vec();
    }

    /// Lets `state` call the ranks of `group` by their place there.
    pub(crate) fn among(&mut self, group: &[Rank], state: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.names, group.to_vec());
        state(self);
        self.names = outer;
    }

    /// A message of so many elements.
    pub(crate) fn send(&mut self, from: Rank, to: Rank, form: Form, elements: usize) {
        self.send_each(from, to, form, elements, 1);
    }

    /// So many messages of so many elements each.
    pub(crate) fn send_each(
        &mut self,
        from: Rank,
        to: Rank,
        form: Form,
        elements: usize,
        messages: usize,
    ) {
        if elements > 0 && messages > 0 {
            let name = |rank: Rank| self.names.get(rank.index()).copied().unwrap_or(rank);
            let bytes = elements * form.data_type(self.call).bytes() * messages;
            let ends = [name(from), name(to)];
            self.crossing.add(self.layout, ends, messages as u64, bytes as u64);
            for [rank, peer] in [ends, [ends[1], ends[0]]] {
                self.peers.get_mut(rank.index()).map(|peers| peers.insert(peer));
            }
        }
    }

    /// Every rank signals every other, which crosses nothing: they are on one host.
    pub(crate) fn all_signal(&mut self) {
        for (rank, peers) in self.peers.iter_mut().enumerate() {
            peers.extend((0..self.layout.size()).filter(|peer| *peer != rank).map(Rank::at));
        }
    }

    /// Every rank sends every other so many messages of so many elements of the data type each.
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

/// How many ordered pairs of different ranks are how far apart.
#[derive(Default)]
struct Pairs {
    host: u64,
    group: u64,
    pod: u64,
    fabric: u64,
    off_rail: u64,
    off_preferred: u64,
}

/// How many ranks have which rails.
type Rails = BTreeMap<Reach, u64>;

impl Pairs {
    fn of(layout: &Layout) -> Self {
        let path = |rank: Rank| layout.path(layout.host(rank)).unwrap_or_default();
        // Without paths all hosts are in one group, each on a machine of its own.
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
        // Other rails of a group are across spines.
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

/// Pairs of ranks with known rails and none in common.
fn pairs_apart(rails: &Rails) -> u64 {
    let known = || rails.iter().filter(|(reach, _)| !reach.is_empty());
    let others = |(a, ranks): (&Reach, &u64)| {
        let apart = known().filter(|(b, _)| !a.meets(**b));
        ranks * apart.map(|(_, others)| others).sum::<u64>()
    };
    known().map(others).sum()
}
