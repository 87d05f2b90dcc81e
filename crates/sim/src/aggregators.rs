//! Aggregators on the switches: the tree of each group, and the chunks that they combine.
//!
//! The ways of a group's members to one switch, its root, are a tree. Where several ways meet,
//! there is an aggregator. It waits for a chunk of all its children, takes its time, and passes the
//! sum on to the aggregator above it. The root sends the result to its children, and so do these.
//! Aggregators have the numbers after those of the ranks, and connections of their own. Each does
//! what `ringfold aggregate` does, with the rate of all its cables.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ringfold_types::Rank;

use crate::job::Job;
use crate::network::Network;
use crate::programs::Programs;

/// The aggregators of a call.
#[derive(Debug, Default)]
pub(crate) struct Aggregators {
    ranks: usize,
    /// By number after the ranks.
    pub(crate) all: Vec<Aggregator>,
    /// By lane, and member or aggregator: the aggregator above it, and the links to that.
    above: HashMap<(usize, Rank), (Rank, Vec<usize>)>,
    /// By lane: the bytes of the parts and of the result of each chunk.
    chunks: Vec<Vec<[usize; 2]>>,
    /// By lane and member: the chunks that it has handed over, and the results that it has taken.
    members: HashMap<(usize, Rank), [usize; 2]>,
    pub(crate) latency_ps: u64,
    /// A lane some of whose members no switch joins.
    pub(crate) parted: Option<[Rank; 2]>,
}

/// A switch that combines chunks.
#[derive(Debug, Default)]
pub(crate) struct Aggregator {
    pub(crate) lane: usize,
    /// The members and aggregators below it.
    pub(crate) children: Vec<Rank>,
    /// The first and the last member below it.
    pub(crate) members: [Rank; 2],
    /// The connections from its children and to them. One of equal children stands for all.
    pub(crate) from: Vec<usize>,
    pub(crate) to: Vec<usize>,
    /// The connections to the aggregator above it, and from that.
    pub(crate) above: Option<[usize; 2]>,
    /// The chunks of which it has all parts, and the times at which the next sums are ready.
    pub(crate) combined: usize,
    pub(crate) ready: VecDeque<u64>,
    /// The sums that it has passed up, and the results that it has passed down.
    pub(crate) summed: usize,
    pub(crate) passed: usize,
}

impl Aggregators {
    /// The aggregators of the groups that the programs have.
    pub(crate) fn of(job: &Job, programs: &Programs, network: &mut Network) -> Self {
        let mut it = Self { ranks: job.layout.size(), ..Self::default() };
        let Some(aggregation) = job.layout.aggregation() else { return it };
        it.latency_ps = aggregation.latency_ps;
        let lanes = programs.of_ranks.iter().map(|it| it.lanes().len()).max().unwrap_or(0);
        for lane in 0..lanes {
            it.chunks.push(Vec::new());
            let group = |rank: usize| {
                let program = &programs.of_ranks[rank];
                if lane < program.lanes().len() { program.group(lane) } else { None }
            };
            if let Some(group) = (0..it.ranks).find_map(group) {
                it.group(job, network, lane, (&group.members, group.number));
            }
        }
        it
    }

    fn group(
        &mut self,
        job: &Job,
        network: &mut Network,
        lane: usize,
        (members, number): (&[Rank], usize),
    ) {
        let ports: Vec<usize> = members.iter().map(|rank| job.port(*rank)).collect();
        let Some(tree) = network.tree(&ports, number) else {
            self.parted = Some([members[0], members[members.len() - 1]]);
            return;
        };
        let first = self.ranks + self.all.len();
        let mut below: BTreeMap<usize, [Rank; 2]> = BTreeMap::new();
        for (member, (joint, _)) in members.iter().zip(&tree.ports) {
            let mut next = Some(*joint);
            while let Some(joint) = next {
                below.entry(joint).or_insert([*member; 2])[1] = *member;
                next = tree.joints[joint].as_ref().map(|(above, _)| *above);
            }
        }
        let number = |joint: usize| Rank::at(first + joint);
        let new = |members| Aggregator { lane, members, ..Aggregator::default() };
        self.all.extend(below.into_values().map(new));
        let joints =
            (0..).zip(tree.joints).filter_map(|(joint, above)| Some((number(joint), above?)));
        let ports = members.iter().copied().zip(tree.ports);
        for (child, (joint, links)) in ports.chain(joints).collect::<Vec<_>>() {
            self.all[first - self.ranks + joint].children.push(child);
            self.above.insert((lane, child), (number(joint), links));
        }
    }

    /// Number of aggregators.
    pub(crate) const fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether this is the number of an aggregator.
    pub(crate) const fn has(&self, place: Rank) -> bool {
        place.index() >= self.ranks
    }

    fn at(&self, place: Rank) -> Option<&Aggregator> {
        self.all.get(place.index().checked_sub(self.ranks)?)
    }

    /// The number of each aggregator, with its lane, its children and the aggregator above it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, &[Rank], Option<Rank>)> {
        let above = |place: Rank, lane: usize| self.above.get(&(lane, place)).map(|it| it.0);
        (self.ranks..)
            .map(Rank::at)
            .zip(&self.all)
            .map(move |(place, it)| (it.lane, &it.children[..], above(place, it.lane)))
    }

    /// The aggregator to which a member hands over its chunks.
    pub(crate) fn above(&self, lane: usize, member: Rank) -> Option<Rank> {
        self.above.get(&(lane, member)).map(|(above, _)| *above)
    }

    /// The links between an aggregator and another one or a member.
    pub(crate) fn links(&self, from: Rank, to: Rank) -> Vec<usize> {
        let lane = [to, from].into_iter().find_map(|it| self.at(it)).map_or(0, |it| it.lane);
        match (self.above.get(&(lane, from)), self.above.get(&(lane, to))) {
            (Some((above, links)), _) if *above == to => links.clone(),
            // The other direction of a cable is the link beside it.
            (_, Some((_, links))) => links.iter().rev().map(|link| link ^ 1).collect(),
            _ => Vec::new(),
        }
    }

    /// Two ranks as far apart as the members below an aggregator, or a rank itself twice.
    pub(crate) fn members(&self, place: Rank) -> [Rank; 2] {
        self.at(place).map_or([place; 2], |it| it.members)
    }

    /// A member hands over the next chunk: so many bytes, with a result of so many.
    pub(crate) fn hand_over(&mut self, lane: usize, member: Rank, bytes: [usize; 2]) {
        let [posted, _] = self.members.entry((lane, member)).or_default();
        if *posted == self.chunks[lane].len() {
            self.chunks[lane].push(bytes);
        }
        *posted += 1;
    }

    /// The bytes of a part and of the result of a chunk, once a member has handed it over.
    pub(crate) fn chunk(&self, lane: usize, index: usize) -> Option<[usize; 2]> {
        self.chunks[lane].get(index).copied()
    }

    /// The bytes of the oldest result that a member has not taken.
    pub(crate) fn next_result(&self, lane: usize, member: Rank) -> Option<usize> {
        let [_, taken] = self.members.get(&(lane, member))?;
        self.chunk(lane, *taken).map(|[_, result]| result)
    }

    /// A member takes a result.
    pub(crate) fn take(&mut self, lane: usize, member: Rank) {
        self.members.entry((lane, member)).or_default()[1] += 1;
    }
}
