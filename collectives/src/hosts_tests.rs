//! Proofs of all ways to spread a call over hosts, including those that are not the cheapest.

use alloc::vec::Vec;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Path, RankReach, Reach};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::algorithm::{ScheduleParams, Stated};
use crate::check::{Conditions, check};
use crate::hosts::{Hierarchy, Spread};
use crate::schedule::Schedule;
use crate::{allgather, alltoall, barrier, broadcast, reduce, reduce_scatter};

const ALL: [(Collective, &Hierarchy); 6] = [
    (Collective::AllGather, &allgather::hierarchical::HIERARCHY),
    (Collective::ReduceScatter, &reduce_scatter::hierarchical::HIERARCHY),
    (Collective::Broadcast, &broadcast::hierarchical::HIERARCHY),
    (Collective::Reduce, &reduce::hierarchical::HIERARCHY),
    (Collective::AllToAll, &alltoall::hierarchical::HIERARCHY),
    (Collective::Barrier, &barrier::hierarchical::HIERARCHY),
];

/// Layouts by the host of each rank, with unknown fabrics, in fabric order and with rails.
fn layouts(names: &[usize]) -> Vec<Layout> {
    let unknown = Layout::from_host_names(names);
    let hosts = u32::try_from(unknown.hosts()).unwrap();
    // The fabric order is against the order of the hosts' numbers.
    let path =
        |host: u32| Path { order: 100 - host, pod: host / 4, group: host / 2, machine: host };
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
fn equal(hosts: usize, ranks: usize) -> [Vec<usize>; 2] {
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

fn schedules(hierarchy: &Hierarchy, plan: &ScheduleParams<'_>, spread: &Spread) -> Vec<Schedule> {
    let ranks = (0..plan.size()).map(Rank::at);
    ranks.map(|rank| (hierarchy.schedule)(&ScheduleParams { rank, ..*plan }, spread)).collect()
}

/// Proves schedules under all conditions, and returns the cost out of place.
fn prove(schedules: &[Schedule], plan: &ScheduleParams<'_>, spread: &Spread) -> Stated {
    let ScheduleParams { call, layout, chunk, window_bytes, .. } = *plan;
    let proven = |in_place, offers| {
        let conditions = Conditions { in_place, window_bytes, offers };
        check(schedules, conditions).unwrap_or_else(|flaw| {
            let mut text = alloc::format!("{flaw}: {call}, {spread:?}, chunks of {chunk}");
            text += &alloc::format!(", {conditions:?}, {layout:?}");
            for schedule in schedules.iter().take(6) {
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

/// Proves calls of each of these counts, in so many pieces. Equal schedules are proven once.
fn prove_all(names: &[usize], counts: &[(usize, usize)]) {
    let (state, mut proven) = (RandomState::new(), HashSet::new());
    for layout in &layouts(names) {
        for (collective, hierarchy) in ALL {
            for &(count, pieces) in counts {
                for call in calls(collective, layout.size(), &[count]) {
                    // Links accept less than a chunk, or several chunks.
                    let (rank, chunk) = (Rank(0), 1 + call.count / pieces);
                    let window_bytes = if pieces > 1 { 16 } else { 8 * chunk };
                    let plan = ScheduleParams { call, layout, rank, chunk, window_bytes };
                    for spread in (hierarchy.ways)(layout) {
                        let schedules = schedules(hierarchy, &plan, &spread);
                        if proven.insert(state.hash_one((&schedules, window_bytes))) {
                            prove(&schedules, &plan, &spread);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_way_is_right_on_equal_hosts() {
    for (hosts, ranks) in
        [(1, 1), (1, 4), (2, 1), (5, 1), (2, 2), (2, 3), (3, 2), (4, 4), (2, 5), (5, 2)]
    {
        for names in equal(hosts, ranks) {
            prove_all(&names, &[(0, 1), (1, 1), (131, 1), (131, 30)]);
        }
    }
}

#[test]
fn every_way_is_right_on_unequal_hosts() {
    let names: [&[usize]; 9] = [
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
    for names in names {
        prove_all(names, &[(0, 1), (3, 1), (211, 1), (211, 40)]);
    }
}

/// More ranks on a host than sends that a rank may post.
#[test]
fn every_way_is_right_on_full_hosts() {
    let [_, dealt] = equal(2, 35);
    let interleaved: Vec<usize> = (0..40).map(|rank| usize::from(rank % 39 == 1)).collect();
    for names in [dealt, interleaved] {
        prove_all(&names, &[(2, 2)]);
    }
}

/// Checks that the costs of `spread` are as stated.
fn compare(hierarchy: &Hierarchy, plan: &ScheduleParams<'_>, spread: &Spread, is_exact: bool) {
    let (call, layout) = (&plan.call, plan.layout);
    let schedules = schedules(hierarchy, plan, spread);
    let cost = prove(&schedules, plan, spread);
    let stated = (hierarchy.stated)(call, layout, spread);
    let fits = cost.steps <= stated.steps && cost.sent <= stated.sent;
    let is_right = if is_exact { cost == stated } else { fits };
    assert!(is_right, "{cost:?}, stated {stated:?}: {call}, {spread:?}, {layout:?}");
}

fn compare_all(names: &[usize], is_exact: bool) {
    let layouts = layouts(names);
    for layout in layouts.iter().filter(|it| it.channels() == 1) {
        let (_, most) = layout.ranks_per_host();
        let shards = layout.carriers().len();
        // Divides evenly into shards and blocks.
        let count = 64 * most * shards * layout.hosts().next_power_of_two() * layout.size();
        for (collective, hierarchy) in ALL {
            for call in calls(collective, layout.size(), &[count]) {
                let (rank, chunk) = (Rank(0), count * layout.size());
                let window_bytes = 8 * chunk * layout.size();
                let plan = ScheduleParams { call, layout, rank, chunk, window_bytes };
                for spread in (hierarchy.ways)(layout) {
                    compare(hierarchy, &plan, &spread, is_exact);
                }
            }
        }
    }
}

#[test]
fn every_way_costs_as_stated() {
    for (hosts, ranks) in
        [(1, 1), (1, 4), (2, 1), (3, 1), (7, 1), (2, 2), (2, 3), (3, 2), (4, 4), (2, 8), (6, 5)]
    {
        for names in equal(hosts, ranks) {
            compare_all(&names, true);
        }
    }
    let names: [&[usize]; 6] = [
        &[0, 0, 1],
        &[0, 1, 0, 2, 2, 0],
        &[0, 0, 0, 1, 1, 2, 2, 2, 2, 2],
        &[3, 2, 1, 0, 0, 1, 1, 2, 3, 3],
        &[0, 1, 1, 2, 2, 3, 3, 4, 4],
        &[0, 1, 0, 1, 0, 1, 0, 0, 2, 2, 0],
    ];
    for names in names {
        compare_all(names, false);
    }
}
