//! Proofs of algorithms that depend on which ranks share a host, for many placements.

use std::collections::BTreeSet;

use rayon::prelude::*;
use ringfold_collectives::{Algorithm, Schedule, Stated};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::random::Random;
use crate::world::{self, Pipeline};

/// Elements of `f32` in the smallest shard of a rank.
const SHARD: usize = 1024;

fn hierarchical() -> &'static Algorithm {
    Algorithm::named(Collective::AllReduce, "hierarchical").unwrap()
}

fn call(count: usize, data_type: DataType) -> Call {
    Call {
        collective: Collective::AllReduce,
        count,
        data_type,
        op: ReduceOp::Sum,
        root: Rank(0),
        wire: Wire::default(),
    }
}

fn schedules(call: Call, layout: &Layout, chunk: usize, window_bytes: usize) -> Vec<Schedule> {
    world::schedules(hierarchical(), call, layout, Pipeline { chunk, window_bytes })
}

fn prove(call: Call, layout: &Layout, chunk: usize, window_bytes: usize) -> Stated {
    let schedules = schedules(call, layout, chunk, window_bytes);
    world::prove(&format!("{layout:?}"), &schedules, window_bytes, true)
}

/// `hosts` hosts of `ranks` ranks each: one host after the other, and ranks dealt in turn.
fn placements(hosts: usize, ranks: usize) -> [Layout; 2] {
    let named = |name: &dyn Fn(usize) -> usize| {
        Layout::from_host_names(&(0..hosts * ranks).map(name).collect::<Vec<_>>())
    };
    [named(&|rank| rank / ranks), named(&|rank| rank % hosts)]
}

fn equal() -> Vec<Layout> {
    let shapes = [(1, 4), (2, 1), (3, 1), (4, 1), (7, 1), (2, 2), (2, 3), (3, 2), (4, 4), (2, 8)];
    let more = [(5, 3), (8, 2), (1, 1), (6, 5)];
    shapes.into_iter().chain(more).flat_map(|(hosts, ranks)| placements(hosts, ranks)).collect()
}

fn unequal() -> Vec<Layout> {
    let names: [&[usize]; 7] = [
        &[0, 0, 1],
        &[0, 1, 1, 1],
        &[0, 1, 0, 2, 2, 0],
        &[0, 0, 0, 1, 1, 2, 2, 2, 2, 2],
        &[3, 2, 1, 0, 0, 1, 1, 2, 3, 3],
        &[0, 1, 1, 2, 2, 3, 3, 4, 4],
        &[0, 0, 0, 0, 1, 1, 1, 2, 2, 2],
    ];
    names.into_iter().map(Layout::from_host_names).collect()
}

#[test]
fn odd_counts_wherever_ranks_are() {
    let layouts: Vec<Layout> = equal().into_iter().chain(unequal()).collect();
    layouts.into_par_iter().for_each(|layout| {
        let ranks = layout.ranks_per_host().1;
        let long = SHARD * ranks;
        for count in [0, 1, 5, 131, SHARD + 1, 2 * SHARD + 3, long - 1, 3 * long + 17] {
            // Links accept less than a chunk, or several chunks.
            prove(call(count, DataType::F32), &layout, 8.max(count / 50), 16.max(count / 40));
            prove(call(count, DataType::Bf16), &layout, 8.max(count / 7), 16.max(3 * count));
        }
    });
}

#[test]
fn every_way_of_the_rails() {
    for hosts in [4, 8, 11] {
        for layout in placements(hosts, 2) {
            let mut seen = BTreeSet::new();
            for bytes in (10..28).map(|power| 1 << power) {
                let call = call(bytes / 4 + 9, DataType::F32);
                prove(call, &layout, bytes / 64, bytes / 32);
                seen.insert((hierarchical().stated)(&call, &layout).steps);
            }
            // Recursive doubling, halving and doubling, or a ring, plus one step within hosts each
            // way.
            let known = match hosts {
                4 => [4, 6, 8],
                8 => [5, 8, 16],
                _ => [6, 10, 22],
            };
            assert_eq!(seen, BTreeSet::from(known), "{hosts} hosts");
        }
    }
}

#[test]
fn more_ranks_than_may_be_sent_to_at_once() {
    for (hosts, ranks) in [(2, 40), (40, 2), (3, 34)] {
        let [layout, _] = placements(hosts, ranks);
        for count in [7, 5 * SHARD, SHARD * ranks + 3] {
            prove(call(count, DataType::F32), &layout, count.div_ceil(9), 16.max(count / 5));
        }
    }
}

#[test]
fn ranks_anywhere() {
    let mut random = Random::seeded();
    for _ in 0..80 {
        let (size, hosts) = (1 + random.below(24), 1 + random.below(6));
        let names: Vec<usize> = (0..size).map(|_| random.below(hosts)).collect();
        let layout = Layout::from_host_names(&names);
        let most = SHARD << random.below(6);
        let count = random.below(most);
        let data_type = [DataType::F32, DataType::Bf16, DataType::I64][random.below(3)];
        let chunk = 1 + count / (1 + random.below(30));
        prove(call(count, data_type), &layout, chunk, 16 + random.below(2 * chunk) + count / 100);
    }
}

#[test]
fn costs_are_as_stated() {
    for layout in equal() {
        let (hosts, ranks) = (layout.hosts(), layout.ranks_per_host().0);
        for scale in [1, 8, 64, 512, 4096] {
            // Divides evenly into shards, blocks and halves of blocks.
            let count = SHARD * ranks * hosts * hosts.next_power_of_two() * scale;
            let call = call(count, DataType::F32);
            let measured = prove(call, &layout, count, count * 8);
            assert_eq!(measured, (hierarchical().stated)(&call, &layout), "{call}, {layout:?}");
        }
    }
    for layout in unequal() {
        let call = call(SHARD * 60, DataType::F32);
        let measured = prove(call, &layout, call.count, call.count * 8);
        let stated = (hierarchical().stated)(&call, &layout);
        let fits = measured.steps <= stated.steps && measured.sent <= stated.sent;
        assert!(fits, "{layout:?}: {measured:?}, stated {stated:?}");
    }
}

/// A host sends no more to others than a single rank would, and no message leaves its rail.
#[test]
fn hosts_send_what_one_rank_would() {
    for (hosts, ranks) in [(2, 8), (4, 4), (8, 2)] {
        for layout in placements(hosts, ranks) {
            let call = call(SHARD * 4 * hosts * ranks * 64, DataType::F32);
            let schedules = schedules(call, &layout, call.count, call.count * 8);
            for host in 0..u32::try_from(hosts).unwrap() {
                let mut sent = 0;
                for &rank in layout.ranks_on(host) {
                    let schedule = &schedules[rank.index()];
                    let place =
                        layout.ranks_on(host).iter().position(|member| *member == rank).unwrap();
                    for step in schedule.lanes().iter().flatten() {
                        let ringfold_collectives::Step::Send { to, src } = step else { continue };
                        if !layout.same_host(rank, *to) {
                            assert!(layout.carriers()[place].contains(to), "{rank} to {to}");
                            sent += src.len;
                        }
                    }
                }
                assert_eq!(sent, 2 * call.count / hosts * (hosts - 1), "{hosts} x {ranks}");
            }
        }
    }
}
