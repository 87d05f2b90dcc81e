//! Every way to spread a call, including those that are not the cheapest.

use alloc::vec::Vec;

use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Path, RankReach, Reach};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use super::{Levels, schedule_by, stated_by};
use crate::algorithm::ScheduleParams;
use crate::check::{Conditions, check};
use crate::crossing::measured;
use crate::schedule::Schedule;

/// Hosts by group. A host is the list of the rails of its ranks.
type Groups<'a> = &'a [&'a [&'a [u16]]];

/// A layout of one group after the other. Ranks are dealt to the hosts in turn.
fn layout(groups: Groups<'_>) -> Layout {
    let mut hosts = Vec::new();
    for (group, members) in (0..).zip(groups) {
        for rails in *members {
            let number = u32::try_from(hosts.len()).unwrap();
            // The fabric order is against the order of the hosts' numbers.
            let path = Path { order: 100 - number, pod: group / 2, group, machine: number };
            hosts.push((path, *rails));
        }
    }
    let most = hosts.iter().map(|(_, rails)| rails.len()).max().unwrap();
    let mut names = Vec::new();
    let mut reach = Vec::new();
    for place in 0..most {
        for (host, (_, rails)) in hosts.iter().enumerate() {
            let Some(rail) = rails.get(place) else { continue };
            let rail = Reach::of(Place { rail: *rail, plane: 0 }).unwrap();
            names.push(host);
            reach.push(RankReach { reaches: rail, prefers: rail });
        }
    }
    let paths: Vec<Path> = hosts.iter().map(|(path, _)| *path).collect();
    Layout::from_host_names(&names).with_paths(&paths).with_reach(&reach)
}

fn schedules(plan: &ScheduleParams<'_>, levels: Levels) -> Vec<Schedule> {
    let ranks = (0..plan.size()).map(Rank::at);
    ranks.map(|rank| schedule_by(&ScheduleParams { rank, ..*plan }, levels)).collect()
}

/// Proves all ways to spread `count` elements, and returns their number.
fn prove(layout: &Layout, count: usize, data_type: DataType, pieces: usize) -> usize {
    let (collective, op) = (Collective::AllReduce, ReduceOp::Sum);
    let call = Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() };
    let (chunk, window_bytes) = (1 + count / pieces, 16 + count / 20);
    let plan = ScheduleParams { call, layout, rank: Rank(0), chunk, window_bytes };
    let all: Vec<Levels> = Levels::all(&call, layout).collect();
    for levels in &all {
        let schedules = schedules(&plan, *levels);
        for (in_place, offers) in [(false, false), (true, false), (false, true), (true, true)] {
            let conditions = Conditions { in_place, window_bytes, offers };
            if let Err(flaw) = check(&schedules, conditions) {
                panic!("{call}, {levels:?}, {layout:?}, {conditions:?}: {flaw}");
            }
        }
    }
    all.len()
}

const HOST: &[u16] = &[0, 1];

#[test]
fn every_way_is_right() {
    let four = [HOST; 4];
    let mixed: &[&[u16]] = &[&[1, 0, 0], &[0, 1], &[2, 0, 1]];
    let single: [&[u16]; 3] = [&[0]; 3];
    for (groups, ways) in [
        (&[&four[..2], &four[..2]][..], 6),
        (&[&four[..3], &four[..3], &four[..3]], 6),
        (&[&four[..], &four[..2], mixed, &four[..1]], 6),
        (&[mixed, mixed, &four[..3], mixed, &four[..2]], 6),
        (&[&single[..], &single[..2], &single[..]], 6),
        // These have no level of groups: there is one group, or groups have one host.
        (&[&four[..]], 3),
        (&[&four[..1], &four[..1], &four[..1]], 3),
    ] {
        let layout = layout(groups);
        for (count, pieces) in [(1, 1), (100, 3), (3_001, 1), (3_001, 9), (9_000, 40)] {
            for data_type in [DataType::F32, DataType::Bf16] {
                assert_eq!(prove(&layout, count, data_type, pieces), ways);
            }
        }
    }
}

#[test]
fn every_way_costs_as_stated() {
    let four = [HOST; 4];
    let single: [&[u16]; 4] = [&[0]; 4];
    for groups in [
        &[&four[..2], &four[..2]][..],
        &[&four[..], &four[..]],
        &[&four[..3], &four[..3], &four[..3]],
        &[&single[..], &single[..], &single[..], &single[..]],
    ] {
        let layout = layout(groups);
        let (collective, op, count) = (Collective::AllReduce, ReduceOp::Sum, 9 * 16 * 16 * 1024);
        for data_type in [DataType::F32, DataType::Bf16] {
            let call =
                Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() };
            let (chunk, window_bytes) = (count, 8 * count);
            let plan = ScheduleParams { call, layout: &layout, rank: Rank(0), chunk, window_bytes };
            for levels in Levels::all(&call, &layout) {
                let schedules = schedules(&plan, levels);
                let conditions = Conditions { in_place: false, window_bytes, offers: false };
                let cost = check(&schedules, conditions).unwrap();
                assert_eq!(cost, stated_by(&call, &levels), "{levels:?}");
            }
        }
    }
}

/// No message leaves its rail, and a level of leaf groups sends the least across spines.
#[test]
fn groups_spare_spines() {
    let host: &[u16] = &[0, 1, 2, 3];
    let four = [host; 4];
    let layout = layout(&[&four[..], &four[..], &four[..]]);
    let (collective, op, count) = (Collective::AllReduce, ReduceOp::Sum, 9 * 16 * 1024);
    let call = Call {
        collective,
        count,
        data_type: DataType::F32,
        op,
        root: Rank(0),
        wire: Wire::default(),
    };
    let (chunk, window_bytes) = (count, 8 * count);
    let plan = ScheduleParams { call, layout: &layout, rank: Rank(0), chunk, window_bytes };
    for levels in Levels::all(&call, &layout) {
        let crossing = measured(schedules(&plan, levels), &layout);
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
