//! Proofs of the algorithms for blocks of different lengths, for every number of ranks up to 64.

use std::ops::Range;

use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, Flaw, check};
use ringfold_collectives::select::{Constraints, Measurements, select_uneven};
use ringfold_collectives::{Blocks, Schedule, ScheduleParams, Stated, Uneven};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::world::{self, SMALL};
use ringfold_harness::Random;

/// Elements that pipelines pass on at a time, and bytes that a link accepts: as for long messages.
const CHUNK: usize = 8;
const WINDOW: usize = 16;

const COLLECTIVES: [Collective; 2] = [Collective::AllGather, Collective::ReduceScatter];

/// Tables of lengths: random ones, mostly empty ones, one long block alone and among short ones,
/// and only empty ones.
fn tables(size: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let long = 5 * CHUNK + random.below(9 * CHUNK);
    let (alone, among) = (random.below(size), random.below(size));
    let one_long = |rest: usize, at: usize| {
        (0..size).map(|rank| if rank == at { long } else { rest }).collect()
    };
    vec![
        (0..size).map(|_| random.below(3 * CHUNK)).collect(),
        (0..size).map(|_| if random.below(3) == 0 { random.below(70) } else { 0 }).collect(),
        one_long(0, alone),
        one_long(1, among),
        vec![0; size],
    ]
}

/// The blocks of one rank: in order, or in another order with gaps, which each rank chooses.
fn placed(lens: &[usize], rank: usize, is_apart: bool) -> Blocks {
    if !is_apart {
        return Blocks::in_order(lens.iter().copied());
    }
    let size = lens.len();
    let mut ranges: Vec<Range<usize>> = vec![0..0; size];
    let mut end = rank % 3;
    for step in 0..size {
        // Reversed, from another rank on.
        let of = (2 * size + rank - step) % size;
        ranges[of] = end..end + lens[of];
        end += lens[of] + (of + rank) % 3;
    }
    Blocks::new(ranges)
}

fn call(collective: Collective, lens: &[usize], data_type: DataType) -> Call {
    let count = lens.iter().copied().max().unwrap_or(0);
    let (op, root, wire) = (ReduceOp::Sum, Rank(0), Wire::default());
    Call { collective, count, data_type, op, root, wire }
}

fn schedules(uneven: &Uneven, call: Call, lens: &[usize], layout: &Layout) -> Vec<Schedule> {
    let size = lens.len();
    let is_apart = lens.iter().sum::<usize>() % 2 == 0;
    let plan = |rank| ScheduleParams {
        call,
        layout,
        rank: Rank::at(rank),
        chunk: CHUNK,
        window_bytes: WINDOW,
    };
    let schedule = |rank| uneven.schedule(&plan(rank), &placed(lens, rank, is_apart));
    (0..size).map(schedule).collect()
}

fn prove(uneven: &Uneven, call: Call, lens: &[usize], layout: &Layout) -> Stated {
    let schedules = schedules(uneven, call, lens, layout);
    let is_staged = schedules.iter().any(Schedule::needs_staging);
    assert!(!is_staged || uneven.algorithm.needs_staging());
    let what = format!("{}, {lens:?}", uneven.algorithm);
    world::prove(&what, &schedules, WINDOW, lens.len() <= SMALL)
}

#[test]
fn any_lengths_for_every_size_to_64() {
    let mut random = Random::seeded();
    let mut proofs = Vec::new();
    for size in (1..=64).rev() {
        let mut tables = tables(size, &mut random);
        if size > SMALL {
            tables = vec![tables.swap_remove(size % tables.len())];
        }
        for lens in tables {
            for uneven in COLLECTIVES.into_iter().flat_map(Uneven::of) {
                proofs.push((uneven, lens.clone()));
            }
        }
    }
    proofs.into_par_iter().for_each(|(uneven, lens)| {
        let collective = uneven.algorithm.collective;
        let call = call(collective, &lens, DataType::F32);
        let stated = prove(uneven, call, &lens, &Layout::one_host(lens.len()));
        if uneven.algorithm.needs_staging() {
            return;
        }
        // No rank sends more than if all blocks were as long as the longest.
        let most = (uneven.algorithm.stated)(&call, &Layout::one_host(lens.len()));
        assert!(stated.sent <= most.sent, "{}, {lens:?}: {stated:?}", uneven.algorithm);
        if uneven.algorithm.name == "ring" && collective == Collective::AllGather {
            // Around a ring, a rank sends every block but the next rank's.
            let total: usize = lens.iter().sum();
            assert!(stated.sent <= total, "{lens:?}: {stated:?}");
        }
    });
}

#[test]
fn short_floats_between_hosts() {
    let mut random = Random::seeded();
    for size in [1, 2, 3, 5, 8, 13] {
        for lens in tables(size, &mut random) {
            for uneven in Uneven::of(Collective::ReduceScatter) {
                if uneven.algorithm.needs_staging() {
                    continue;
                }
                for wire in [Wire::Element, Wire::Accumulator] {
                    let call = call(Collective::ReduceScatter, &lens, DataType::Bf16);
                    prove(uneven, Call { wire, ..call }, &lens, &Layout::apart(size));
                }
            }
        }
    }
}

#[test]
fn several_channels() {
    let mut random = Random::seeded();
    for (size, channels) in [(2, 2), (3, 3), (5, 8), (12, 2)] {
        let layout = Layout::one_host(size).with_channels(channels);
        for mut lens in tables(size, &mut random) {
            lens[0] += 9 * CHUNK * channels;
            for collective in COLLECTIVES {
                for uneven in Uneven::of(collective) {
                    prove(uneven, call(collective, &lens, DataType::F32), &lens, &layout);
                }
            }
        }
    }
}

/// Equal blocks have the schedules of the even call, but for the note of their lengths.
#[test]
fn equal_blocks_have_the_schedules_of_the_even_call() {
    for (size, len) in [(1, 5), (2, 100), (3, 8), (7, 65), (16, 1)] {
        let layout = Layout::one_host(size);
        for uneven in COLLECTIVES.into_iter().flat_map(Uneven::of) {
            let call = call(uneven.algorithm.collective, &vec![len; size], DataType::F32);
            for rank in 0..size {
                let rank = Rank::at(rank);
                let (chunk, window_bytes) = (CHUNK, WINDOW);
                let plan = ScheduleParams { call, layout: &layout, rank, chunk, window_bytes };
                let even = (uneven.algorithm.schedule)(&plan);
                let blocks = Blocks::in_order(vec![len; size]);
                assert_eq!(uneven.schedule(&plan, &blocks).lanes(), even.lanes());
            }
        }
    }
}

/// The proofs refuse ranks that do not agree on the lengths.
#[test]
fn other_lengths_are_a_flaw() {
    for uneven in COLLECTIVES.into_iter().flat_map(Uneven::of) {
        let call = call(uneven.algorithm.collective, &[9, 9, 9], DataType::F32);
        let layout = Layout::one_host(3);
        let schedules: Vec<_> = [[9, 2, 5], [9, 2, 5], [9, 3, 4]]
            .into_iter()
            .enumerate()
            .map(|(rank, lens)| {
                let (rank, chunk, window_bytes) = (Rank::at(rank), CHUNK, WINDOW);
                let plan = ScheduleParams { call, layout: &layout, rank, chunk, window_bytes };
                uneven.schedule(&plan, &Blocks::in_order(lens))
            })
            .collect();
        let conditions = Conditions { in_place: false, window_bytes: WINDOW, offers: false };
        let flaw: Result<_, Flaw> = check(&schedules, conditions);
        assert!(flaw.is_err(), "{}", uneven.algorithm);
    }
}

/// As in MPICH and Open MPI: few steps for short blocks, and a ring for long ones. Where one block
/// is long, its rank sends it once around a ring, and not to each other rank.
#[test]
fn the_lengths_decide() {
    let layout = Layout::apart(16);
    let chosen = |lens: &[usize], rule: &str| {
        let call = call(Collective::AllGather, lens, DataType::F32);
        let blocks = Blocks::in_order(lens.iter().copied());
        let constraints: Constraints = rule.parse().unwrap_or_default();
        let measured = Measurements::default();
        select_uneven(&call, &blocks, &layout, &constraints, &measured).algorithm.name
    };
    let short: Vec<usize> = (0..16).map(|rank| rank % 4).collect();
    assert!(["bruck", "direct"].contains(&chosen(&short, "")), "{}", chosen(&short, ""));
    let mut one_long = vec![0; 16];
    one_long[3] = 1 << 20;
    assert_eq!(chosen(&one_long, ""), "ring");
    // Rules hold, and those that leave no algorithm for such blocks have no effect.
    assert_eq!(chosen(&one_long, "allgather:bruck"), "bruck");
    assert_eq!(chosen(&one_long, "allgather:recursive_doubling"), "ring");
}
