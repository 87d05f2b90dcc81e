//! Proofs of all ways to spread a call over hosts, including those that are not the cheapest.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use rayon::prelude::*;
use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Path, RankReach, Reach};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::algorithm::{ScheduleParams, Stated};
use crate::check::{Conditions, check};
use crate::hosts::Spread;
use crate::schedule::Schedule;
use crate::{allgather, alltoall, barrier, broadcast, reduce, reduce_scatter};

/// Collectives, and all ways to spread their calls.
#[derive(Clone, Copy)]
pub(crate) struct Spreads {
    pub(crate) collectives: &'static [Collective],
    pub(crate) ways: fn(&ScheduleParams<'_>) -> Vec<Way>,
    /// A count that divides evenly into shards, parts and blocks.
    pub(crate) even: fn(&Layout) -> usize,
    /// Whether costs are exact only where leaf groups are equal.
    pub(crate) has_groups: bool,
}

/// A way to spread a call.
pub(crate) struct Way {
    text: String,
    schedules: Vec<Schedule>,
    stated: Stated,
}

impl Way {
    pub(crate) fn new(
        plan: &ScheduleParams<'_>,
        name: &dyn Debug,
        stated: Stated,
        schedule: impl Fn(&ScheduleParams<'_>) -> Schedule,
    ) -> Self {
        let ranks = (0..plan.size()).map(Rank::at);
        let schedules = ranks.map(|rank| schedule(&ScheduleParams { rank, ..*plan })).collect();
        Self { text: alloc::format!("{name:?}"), schedules, stated }
    }
}

const HIERARCHIES: Spreads = Spreads {
    collectives: &[
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::AllToAll,
        Collective::Barrier,
    ],
    ways: |plan| {
        let hierarchy = match plan.call.collective {
            Collective::AllGather => &allgather::hierarchical::HIERARCHY,
            Collective::ReduceScatter => &reduce_scatter::hierarchical::HIERARCHY,
            Collective::Broadcast => &broadcast::hierarchical::HIERARCHY,
            Collective::Reduce => &reduce::hierarchical::HIERARCHY,
            Collective::AllToAll => &alltoall::hierarchical::HIERARCHY,
            _ => &barrier::hierarchical::HIERARCHY,
        };
        let way = |spread: &Spread| {
            let stated = (hierarchy.stated)(&plan.call, plan.layout, spread);
            Way::new(plan, spread, stated, |plan| (hierarchy.schedule)(plan, spread))
        };
        (hierarchy.ways)(plan.layout).iter().map(way).collect()
    },
    even: |layout| {
        let (shards, (_, most)) = (layout.carriers().len(), layout.ranks_per_host());
        64 * most * shards * layout.hosts().next_power_of_two() * layout.size()
    },
    has_groups: false,
};

/// Layouts by the host of each rank, with unknown fabrics, in fabric order and with rails.
fn layouts(names: &[usize]) -> Vec<Layout> {
    let unknown = Layout::from_host_names(names);
    let hosts = u32::try_from(unknown.hosts()).unwrap();
    // The fabric order is against the order of the hosts' numbers.
    let each = if hosts > 5 { 3 } else { 2 };
    let path = |host: u32| {
        let group = host / each;
        Path { order: 100 - host, pod: group / 2, group, machine: host }
    };
    let known = unknown.clone().with_paths(&(0..hosts).map(path).collect::<Vec<_>>());
    let rail = |rank: usize| {
        let rail = u16::try_from(rank % 2).unwrap();
        let rail = Reach::of(Place { rail, plane: 0 }).unwrap();
        RankReach { reaches: rail, prefers: rail }
    };
    let rails = known.clone().with_reach(&(0..names.len()).map(rail).collect::<Vec<_>>());
    let lanes = unknown.clone().with_channels(3);
    alloc::vec![unknown, lanes, known, rails]
}

/// `hosts` hosts of `ranks` ranks each: one host after the other, and ranks dealt in turn.
pub(crate) fn equal(hosts: usize, ranks: usize) -> [Vec<usize>; 2] {
    let all = 0..hosts * ranks;
    [all.clone().map(|rank| rank / ranks).collect(), all.map(|rank| rank % hosts).collect()]
}

fn calls(collective: Collective, size: usize, counts: &[usize]) -> Vec<Call> {
    let (f32, bf16) = (DataType::F32, DataType::Bf16);
    let mut types = alloc::vec![(f32, Wire::Element)];
    if collective.reduces() {
        types.extend([(bf16, Wire::Element), (bf16, Wire::Accumulator)]);
    }
    let counts = if collective == Collective::Barrier { &[0] } else { counts };
    let mut roots = alloc::vec![0, size / 2, size - 1];
    roots.truncate(if collective.has_root() { 3 } else { 1 });
    roots.dedup();
    let mut calls = Vec::new();
    for &count in counts {
        for &(data_type, wire) in &types {
            for root in roots.iter().copied().map(Rank::at) {
                calls.push(Call { collective, count, data_type, op: ReduceOp::Sum, root, wire });
            }
        }
    }
    calls
}

/// Proves a way under all conditions, and returns the cost out of place.
fn prove(way: &Way, plan: &ScheduleParams<'_>) -> Stated {
    let ScheduleParams { call, layout, chunk, window_bytes, .. } = *plan;
    let proven = |in_place, offers| {
        let conditions = Conditions { in_place, window_bytes, offers };
        check(&way.schedules, conditions).unwrap_or_else(|flaw| {
            let mut text = alloc::format!("{flaw}: {call}, {}, chunks of {chunk}", way.text);
            text += &alloc::format!(", {conditions:?}, {layout:?}");
            for schedule in way.schedules.iter().take(6) {
                text += &alloc::format!("\n{schedule}");
            }
            panic!("{text}")
        })
    };
    for (in_place, offers) in [(true, false), (true, true), (false, true)] {
        proven(in_place, offers);
    }
    proven(false, false)
}

pub(crate) const UNEQUAL: [&[usize]; 9] = [
    &[0, 0, 1],
    &[0, 1, 1, 1],
    &[0, 0, 0, 1, 2, 2],
    &[0, 1, 0, 2, 2, 0],
    &[0, 0, 0, 1, 1, 2, 2, 2, 2, 2],
    &[3, 2, 1, 0, 0, 1, 1, 2, 3, 3],
    &[0, 1, 1, 2, 2, 3, 3, 4, 4],
    &[0, 1, 0, 1, 0, 1, 0, 0, 2, 2, 0],
    &[0, 1, 2, 0, 1, 0, 0, 3, 0, 1],
];

impl Spreads {
    /// Proves calls of each of these counts, in so many pieces. Equal schedules are proven once.
    pub(crate) fn prove(&self, names: &[usize], counts: &[(usize, usize)]) {
        let (state, mut proven) = (RandomState::new(), HashSet::new());
        for layout in &layouts(names) {
            for (collective, &(count, pieces)) in
                self.collectives.iter().flat_map(|it| counts.iter().map(move |count| (*it, count)))
            {
                for call in calls(collective, layout.size(), &[count]) {
                    // Links accept less than a chunk, or several chunks.
                    let (rank, chunk) = (Rank(0), 1 + call.count / pieces);
                    let window_bytes = if pieces > 1 { 16 } else { 8 * chunk };
                    let plan = ScheduleParams { call, layout, rank, chunk, window_bytes };
                    for way in (self.ways)(&plan) {
                        if proven.insert(state.hash_one((&way.schedules, window_bytes))) {
                            prove(&way, &plan);
                        }
                    }
                }
            }
        }
    }

    /// Checks that the costs of all ways are as stated, or at most so where hosts differ in size.
    pub(crate) fn cost_as_stated(&self) {
        let shapes = [(1, 1), (1, 4), (2, 1), (3, 1), (7, 1), (2, 2), (2, 3), (3, 2), (4, 4)];
        let shapes = shapes.into_iter().chain([(2, 8), (6, 5), (9, 2)]);
        let equal = shapes.flat_map(|(hosts, ranks)| equal(hosts, ranks));
        equal.par_bridge().for_each(|names| self.compare(&names, true));
        UNEQUAL.into_par_iter().for_each(|names| self.compare(names, false));
    }

    fn compare(&self, names: &[usize], is_exact: bool) {
        let layouts = layouts(names);
        for layout in layouts.iter().filter(|it| it.channels() == 1) {
            let groups = layout.leaf_groups();
            let are_equal = groups.iter().all(|group| group.len() == groups[0].len());
            let is_exact = is_exact && (are_equal || !self.has_groups);
            let count = (self.even)(layout);
            for collective in self.collectives {
                for call in calls(*collective, layout.size(), &[count]) {
                    let (rank, chunk) = (Rank(0), count * layout.size());
                    let window_bytes = 8 * chunk * layout.size();
                    let plan = ScheduleParams { call, layout, rank, chunk, window_bytes };
                    for way in (self.ways)(&plan) {
                        let (cost, stated) = (prove(&way, &plan), way.stated);
                        let fits = cost.steps <= stated.steps && cost.sent <= stated.sent;
                        let is_right = if is_exact { cost == stated } else { fits };
                        let what = &way.text;
                        assert!(is_right, "{cost:?}, {stated:?}: {call}, {what}, {layout:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_way_is_right_on_equal_hosts() {
    let shapes = [(1, 1), (1, 4), (2, 1), (5, 1), (2, 2), (2, 3), (3, 2), (4, 4), (2, 5), (5, 2)];
    let names: Vec<_> = shapes.iter().flat_map(|(hosts, ranks)| equal(*hosts, *ranks)).collect();
    let prove = |names| HIERARCHIES.prove(names, &[(0, 1), (1, 1), (131, 1), (131, 30)]);
    names.par_iter().for_each(|names| prove(names));
}

#[test]
fn every_way_is_right_on_unequal_hosts() {
    let prove = |names| HIERARCHIES.prove(names, &[(0, 1), (3, 1), (211, 1), (211, 40)]);
    UNEQUAL.par_iter().for_each(|names| prove(names));
}

/// More ranks on a host than sends that a rank may post.
#[test]
fn every_way_is_right_on_full_hosts() {
    let [_, dealt] = equal(2, 35);
    let interleaved: Vec<usize> = (0..40).map(|rank| usize::from(rank % 39 == 1)).collect();
    for names in [dealt, interleaved] {
        HIERARCHIES.prove(&names, &[(2, 2)]);
    }
}

#[test]
fn every_way_costs_as_stated() {
    HIERARCHIES.cost_as_stated();
}
