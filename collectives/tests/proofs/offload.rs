//! Proofs of the algorithms with a provider in the network: with it, without it, and with one that
//! fails in the middle of a call.

use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, Flaw, check, check_failing};
use ringfold_collectives::select::{Constraints, Measurements, is_possible, select};
use ringfold_collectives::{Algorithm, Schedule};
use ringfold_topology::{Aggregation, AggregationTree, Layout};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::world::{Pipeline, schedules};

/// Links accept no more than a chunk, as for large messages.
const LONG: Pipeline = Pipeline { chunk: 4, window_bytes: 16 };

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
            let tree = AggregationTree::levels(layout.hosts(), children).into();
            let star = Aggregation::star(layout.hosts());
            let aggregation = Aggregation { tree, groups, window, ..star };
            layouts.push(layout.clone().with_aggregation(Some(aggregation)));
        }
    }
    for (shape, groups, window) in UNEVEN {
        let tree = tree(shape);
        let layout = Layout::apart(tree.members().len());
        let star = Aggregation::star(layout.hosts());
        let tree = tree.into();
        let aggregation = Aggregation { tree, groups, window, ..star };
        layouts.push(layout.with_aggregation(Some(aggregation)));
    }
    layouts
}

/// Trees of two and three levels whose aggregators have different numbers of children, with the
/// numbers of groups and the windows.
const UNEVEN: [(&str, usize, usize); 5] = [
    ("[[...][.]]", 1, 2),
    ("[[.][....]]", 2, 3),
    ("[[..][.][...]]", 1, 1),
    ("[[[..][.]][[...]]]", 1, 2),
    ("[[[.]][[..][.]][[.][..]]]", 2, 4),
];

/// A tree from its shape: an aggregator in brackets, and a dot for each member.
fn tree(shape: &str) -> AggregationTree {
    let (mut open, mut next) = (vec![Vec::new()], 0);
    for letter in shape.chars() {
        match letter {
            '[' => open.push(Vec::new()),
            ']' => {
                let children = open.pop().unwrap();
                open.last_mut().unwrap().push(AggregationTree::Node(children));
            }
            _ => {
                open.last_mut().unwrap().push(AggregationTree::Member(next));
                next += 1;
            }
        }
    }
    open.pop().unwrap().pop().unwrap()
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

/// All calls, with the schedules of their ranks.
fn worlds() -> Vec<(Call, Layout, Vec<Schedule>)> {
    let mut worlds = Vec::new();
    for layout in layouts() {
        for collective in COLLECTIVES {
            let algorithm = Algorithm::named(collective, "in_network").unwrap();
            for call in calls(collective, &layout) {
                if is_possible(algorithm, &call, &layout) {
                    worlds.push((call, layout.clone(), schedules(algorithm, call, &layout, LONG)));
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
    all.map(|(in_place, offers)| Conditions { in_place, window_bytes: LONG.window_bytes, offers })
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
        let each = 1 + operations / 5;
        for turns in (1..operations + 8).step_by(each) {
            for conditions in conditions() {
                let how = format!("{call}, {:?}, {conditions:?}, {turns}", layout.aggregation());
                assert_proven(check_failing(&schedules, conditions, turns), &schedules, &how);
            }
        }
    });
}

/// Hosts with an aggregator, for the price of a call. `shared` hosts share each link of it.
fn network(hosts: usize, is_automatic: bool, shared: u64) -> Layout {
    let layout = Layout::apart(hosts);
    let byte_ps = layout.prices().link(layout.links_between()).byte_ps * shared;
    let aggregation = Aggregation { is_automatic, byte_ps, ..Aggregation::star(hosts) };
    layout.with_aggregation(Some(aggregation))
}

fn all_reduce(count: usize, data_type: DataType) -> Call {
    let (collective, op) = (Collective::AllReduce, ReduceOp::Sum);
    Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() }
}

fn name(call: &Call, layout: &Layout, rules: &str) -> &'static str {
    let rules: Constraints = rules.parse().unwrap();
    select(call, layout, &rules, &Measurements::default()).name
}

#[test]
fn selection_takes_aggregators_where_they_win_and_are_exact() {
    let bytes = 64 << 20;
    for data_type in [DataType::F32, DataType::Bf16] {
        let call = all_reduce(bytes / data_type.bytes(), data_type);
        for hosts in [4, 8] {
            // A link for each child.
            assert_eq!(name(&call, &network(hosts, true, 1), ""), "in_network", "{hosts} hosts");
            // One NIC of the rate of a host for all children.
            let shared = network(hosts, true, hosts as u64);
            assert_ne!(name(&call, &shared, ""), "in_network", "{hosts} hosts");
            assert_eq!(name(&call, &shared, "allreduce:in_network"), "in_network");
            // The switch's sums have other bits, so only the user may choose it.
            let inexact = network(hosts, false, 1);
            assert_ne!(name(&call, &inexact, ""), "in_network");
            // Not even where measurements say that it is fastest.
            let rows = format!("allreduce {hosts} {hosts} {bytes} in_network 1");
            let measured = rows.parse().unwrap();
            let none = Constraints::default();
            assert_ne!(select(&call, &inexact, &none, &measured).name, "in_network");
            let exact = network(hosts, true, 1);
            assert_eq!(select(&call, &exact, &none, &measured).name, "in_network");
            assert_eq!(name(&call, &inexact, "allreduce:in_network"), "in_network");
        }
    }
    let call = all_reduce(16 << 20, DataType::F32);
    assert_ne!(name(&call, &Layout::apart(8), "allreduce:in_network"), "in_network");
}

/// More than one gigabyte is possible, and 300 MiB are proven chunk by chunk as they are lowered.
#[test]
fn calls_of_any_length_are_possible() {
    let layout = network(3, true, 1);
    let algorithm = Algorithm::named(Collective::AllReduce, "in_network").unwrap();
    assert!(is_possible(algorithm, &all_reduce(usize::MAX / 16, DataType::F32), &layout));
    let call = all_reduce(75 << 20, DataType::F32);
    let pipeline = Pipeline { chunk: 32 << 10, window_bytes: 1 << 20 };
    let schedules = schedules(algorithm, call, &layout, pipeline);
    let conditions = Conditions { in_place: true, window_bytes: 1 << 20, offers: false };
    check(&schedules, conditions).unwrap();
    check_failing(&schedules, conditions, 10_000).unwrap();
}
