//! Every way to spread a call, including those that are not the cheapest.

use alloc::vec::Vec;

use rayon::prelude::*;
use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Path, RankReach, Reach};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use super::{Levels, schedule_by, stated_by};
use crate::algorithm::ScheduleParams;
use crate::crossing::measured;
use crate::hosts_tests::{self, Spreads, UNEQUAL, Way};
use crate::schedule::Schedule;

const LEVELS: Spreads = Spreads {
    collectives: &[Collective::AllReduce],
    ways: |plan| {
        let way = |levels| {
            let stated = stated_by(&plan.call, &levels);
            Way::new(plan, &levels, stated, |plan| schedule_by(plan, levels))
        };
        Levels::all(&plan.call, plan.layout).map(way).collect()
    },
    even: |layout| {
        let (hosts, groups) = (layout.hosts(), layout.leaf_groups());
        let parts = groups.iter().map(Vec::len).min().unwrap_or(1);
        let (groups, blocks) = (groups.len().max(1), hosts * hosts.next_power_of_two());
        1024 * layout.carriers().len() * parts * blocks * groups * groups.next_power_of_two()
    },
    has_groups: true,
};

#[test]
fn every_way_is_right() {
    let shapes = [(1, 4), (2, 1), (2, 3), (5, 2), (4, 3), (9, 2), (11, 1)];
    let equal = shapes.iter().flat_map(|(hosts, ranks)| hosts_tests::equal(*hosts, *ranks));
    let names: Vec<_> = equal.chain(UNEQUAL.iter().map(|it| it.to_vec())).collect();
    names.par_iter().for_each(|names| {
        LEVELS.prove(names, &[(0, 1), (1, 1), (131, 9), (3_001, 1)]);
    });
    LEVELS.prove(UNEQUAL[5], &[(9_000, 40)]);
    // More ranks on a host than sends that a rank may post, and as many shards.
    let [_, dealt] = hosts_tests::equal(2, 35);
    LEVELS.prove(&dealt, &[(7, 1), (36_001, 1)]);
}

#[test]
fn every_way_costs_as_stated() {
    LEVELS.cost_as_stated();
}

/// No message leaves its rail, and a level of leaf groups sends the least across spines.
#[test]
fn groups_spare_spines() {
    let path = |host| Path { order: 100 - host, pod: 0, group: host / 4, machine: host };
    let rail = |rank: u16| Reach::of(Place { rail: rank % 4, plane: 0 }).unwrap();
    let reach = |rank| RankReach { reaches: rail(rank), prefers: rail(rank) };
    let layout = Layout::hosts_of(4, 48).with_paths(&(0..12).map(path).collect::<Vec<_>>());
    let layout = &layout.with_reach(&(0..48).map(reach).collect::<Vec<_>>());
    let (collective, data_type, count) = (Collective::AllReduce, DataType::F32, 9 * 16 * 1024);
    let (op, root, wire) = (ReduceOp::Sum, Rank(0), Wire::default());
    let call = Call { collective, count, data_type, op, root, wire };
    let plan = |rank| ScheduleParams { call, layout, rank, chunk: count, window_bytes: 8 * count };
    assert_eq!(Levels::all(&call, &Layout::hosts_of(4, 48)).count(), 3, "without groups");
    assert_eq!(Levels::all(&call, layout).count(), 6);
    for levels in Levels::all(&call, layout) {
        let schedules = (0..48).map(|rank| schedule_by(&plan(Rank(rank)), levels));
        let crossing = measured(schedules.collect::<Vec<Schedule>>(), layout);
        assert_eq!(crossing.off_rail.bytes, 0, "{levels:?}");
        let bytes = crossing.across_spines().bytes;
        // Twice the buffer for each group but one.
        let least = (2 * 2 * count * 4) as u64;
        // Each rank of recursive doubling sends the whole buffer.
        let is_least =
            levels.groups.is_some() && levels.rail.algorithm.name != "recursive_doubling";
        assert!(bytes == least || !is_least && bytes > least, "{levels:?}: {bytes} of {least}");
    }
}
