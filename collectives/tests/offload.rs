//! Proofs of the algorithms with a provider in the network: with it, without it, and with one that
//! fails in the middle of a call.
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, Flaw, check, check_failing};
use ringfold_collectives::select::{Constraints, Measurements, is_possible, select};
use ringfold_collectives::{Algorithm, Schedule, ScheduleParams};
use ringfold_topology::{Aggregation, AggregationTree, Layout};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

/// Elements that pipelines pass on at a time.
const CHUNK: usize = 4;

/// Bytes that a link accepts: less than a chunk, as for large messages.
const WINDOW: usize = 16;

const COLLECTIVES: [Collective; 3] =
    [Collective::AllReduce, Collective::Reduce, Collective::Barrier];

/// Few hosts with one rank or several, even and uneven, below trees of one level and of several.
fn layouts() -> Vec<Layout> {
    let mut layouts = Vec::new();
    let hosts: [&[usize]; 6] = [
        &[0, 1],
        &[0, 1, 2, 3, 4],
        &[0, 0, 1, 1],
        &[0, 1, 1, 2, 0],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 0, 0, 1, 2, 2, 3],
    ];
    for names in hosts {
        let layout = Layout::from_host_names(names);
        for (children, groups, window) in [(64, 1, 2), (2, 1, 3), (3, 2, 1), (64, 3, 8)] {
            let tree = AggregationTree::levels(layout.hosts(), children);
            let star = Aggregation::star(layout.hosts());
            let aggregation = Aggregation { tree, groups, window, ..star };
            layouts.push(layout.clone().with_aggregation(Some(aggregation)));
        }
    }
    layouts
}

fn calls(collective: Collective, layout: &Layout) -> Vec<Call> {
    let counts: &[usize] = match collective {
        Collective::Barrier => &[0],
        _ => &[0, 1, 5, 60],
    };
    let roots = if collective.has_root() { layout.size() } else { 1 };
    let mut calls = Vec::new();
    for count in counts {
        for (data_type, op, wire) in [
            (DataType::F32, ReduceOp::Sum, Wire::Element),
            (DataType::Bf16, ReduceOp::Sum, Wire::Element),
            (DataType::Bf16, ReduceOp::Sum, Wire::Accumulator),
            (DataType::F16, ReduceOp::Avg, Wire::Element),
        ] {
            for root in (0..roots).map(Rank::at) {
                calls.push(Call { collective, count: *count, data_type, op, root, wire });
            }
        }
    }
    calls
}

fn schedules(algorithm: &Algorithm, call: Call, layout: &Layout) -> Vec<Schedule> {
    let plan = |rank| ScheduleParams { call, layout, rank, chunk: CHUNK, window_bytes: WINDOW };
    (0..layout.size()).map(|rank| (algorithm.schedule)(&plan(Rank::at(rank)))).collect()
}

/// All calls, with the schedules of their ranks.
fn worlds() -> Vec<(Call, Layout, Vec<Schedule>)> {
    let mut worlds = Vec::new();
    for layout in layouts() {
        for collective in COLLECTIVES {
            let algorithm = Algorithm::named(collective, "in_network").unwrap();
            for call in calls(collective, &layout) {
                if is_possible(algorithm, &call, &layout) {
                    worlds.push((call, layout.clone(), schedules(algorithm, call, &layout)));
                }
            }
        }
    }
    worlds
}

fn assert_proven(proven: Result<(), Flaw>, schedules: &[Schedule], how: &str) {
    let Err(flaw) = proven else { return };
    let text: Vec<String> = schedules.iter().map(ToString::to_string).collect();
    panic!("{how}: {flaw}\n{}", text.join("\n"));
}

fn conditions() -> impl Iterator<Item = Conditions> {
    let all = [false, true].into_iter().flat_map(|in_place| [(in_place, false), (in_place, true)]);
    all.map(|(in_place, offers)| Conditions { in_place, window_bytes: WINDOW, offers })
}

#[test]
fn the_bits_are_the_same_with_a_provider_and_without() {
    worlds().into_par_iter().for_each(|(call, layout, schedules)| {
        for conditions in conditions() {
            let how = format!("{call}, {:?}, {conditions:?}", layout.aggregation());
            let proven = check(&schedules, conditions);
            assert_proven(proven.map(drop), &schedules, &how);
        }
    });
}

#[test]
fn a_provider_may_fail_at_any_moment() {
    worlds().into_par_iter().for_each(|(call, layout, schedules)| {
        let operations: usize =
            schedules.iter().flat_map(Schedule::lanes).map(|steps| 4 * steps.len()).sum();
        let each = 1 + operations / 12;
        for turns in (1..operations + 8).step_by(each) {
            for conditions in conditions() {
                let how = format!("{call}, {:?}, {conditions:?}, {turns}", layout.aggregation());
                assert_proven(check_failing(&schedules, conditions, turns), &schedules, &how);
            }
        }
    });
}

/// A provider that the ranks pass by, for the price of a call.
fn network(hosts: usize, is_exact: bool, child_byte_ps: u64) -> Layout {
    let aggregation = Aggregation { is_exact, child_byte_ps, ..Aggregation::star(hosts) };
    Layout::apart(hosts).with_aggregation(Some(aggregation))
}

#[test]
fn selection_takes_aggregators_where_they_win_and_are_exact() {
    let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
    let (root, wire) = (Rank(0), Wire::default());
    let call = Call { collective, count: 16 << 20, data_type, op, root, wire };
    let name = |layout: &Layout, rules: &str| {
        let rules: Constraints = rules.parse().unwrap();
        select(&call, layout, &rules, &Measurements::default()).name
    };
    assert_eq!(name(&network(8, true, 0), ""), "in_network");
    // One NIC of the rate of a host serves eight hosts.
    let shared = network(8, true, 400);
    assert_ne!(name(&shared, ""), "in_network");
    assert_eq!(name(&shared, "allreduce:in_network"), "in_network");
    let inexact = network(8, false, 0);
    assert_ne!(name(&inexact, ""), "in_network");
    assert_eq!(name(&inexact, "allreduce:in_network"), "in_network");
    assert_ne!(name(&Layout::apart(8), "allreduce:in_network"), "in_network");
}
