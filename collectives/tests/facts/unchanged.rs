//! Schedules for ranks with an unknown fabric are the reviewed ones.
//!
//! `golden/schedules.txt` has two digests of each algorithm's schedules: with partial results that
//! travel as elements and as accumulators. An intended change of an algorithm shows there, and in
//! no other line.

use std::fmt::Write;
use std::hash::Hash as _;

use ringfold_collectives::{Algorithm, ScheduleParams};
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Digest, Rank, ReduceOp, Wire};

/// Ranks on hosts one after the other, dealt in turn, and at arbitrary places; with and without
/// channels.
fn layouts() -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (ranks, size) in [(1, 1), (2, 2), (1, 3), (4, 8), (3, 9), (5, 13), (8, 32), (1, 17)] {
        let hosts = size / ranks;
        layouts.push(Layout::hosts_of(ranks, size));
        layouts.push(Layout::hosts_of(ranks, size).with_channels(3));
        let dealt: Vec<usize> = (0..size).map(|rank| rank % hosts).collect();
        layouts.push(Layout::from_host_names(&dealt));
        let anywhere: Vec<usize> = (0..size).map(|rank| rank * rank % 7 % (hosts + 1)).collect();
        layouts.push(Layout::from_host_names(&anywhere).with_channels(2));
    }
    layouts
}

fn digest(algorithm: &Algorithm, wire: Wire) -> u64 {
    let mut digest = Digest::default();
    for layout in layouts() {
        let size = layout.size();
        for count in [0, 1, 13, 64 * size, 100_000] {
            for root in [0, size / 2, size - 1].map(Rank::at) {
                let (collective, data_type) = (algorithm.collective, DataType::Bf16);
                let call = Call { collective, count, data_type, op: ReduceOp::Sum, root, wire };
                for rank in (0..size).map(Rank::at) {
                    let (layout, window_bytes) = (&layout, LINK_BYTES_MIN);
                    let plan =
                        ScheduleParams { call, layout, rank, chunk: 1 + count / 9, window_bytes };
                    // The steps alone tell the difference.
                    let printed = (algorithm.schedule)(&plan).to_string();
                    printed.replace(", wire accumulator", "").hash(&mut digest);
                }
            }
        }
    }
    digest.finish()
}

#[test]
fn schedules_without_a_fabric_are_as_reviewed() {
    let mut now = String::new();
    for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
        let [element, accumulator] = Wire::ALL.map(|wire| digest(algorithm, wire));
        writeln!(now, "{algorithm} {element:016x} {accumulator:016x}").expect("a string grows");
    }
    assert_eq!(now, include_str!("golden/schedules.txt"), "now:\n{now}");
}
