//! Every algorithm, proven for every number of ranks up to 64 and some beyond.

use ringfold_collectives::check::{Conditions, check};
use ringfold_collectives::{Algorithm, Plan, Schedule, Stated};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

/// Elements that pass at a time here: few, so that small counts exercise pipelines.
const CHUNK: usize = 8;

/// Bytes that a link accepts here: less than a chunk, as for large messages.
const WINDOW: usize = 16;

fn schedules(
    algorithm: &Algorithm,
    call: Call,
    size: usize,
    chunk: usize,
    window_bytes: usize,
) -> Vec<Schedule> {
    let layout = Layout::one_host(size);
    let plan = |rank| Plan { call, layout: &layout, rank: Rank::at(rank), chunk, window_bytes };
    (0..size).map(|rank| (algorithm.schedule)(&plan(rank))).collect()
}

fn prove(
    algorithm: &Algorithm,
    call: Call,
    size: usize,
    chunk: usize,
    window_bytes: usize,
) -> Stated {
    let schedules = schedules(algorithm, call, size, chunk, window_bytes);
    let mut costs = [false, true].map(|in_place| {
        check(&schedules, Conditions { in_place, window_bytes }).unwrap_or_else(|flaw| {
            let mut text =
                format!("{algorithm}, {call}, {size} ranks, in place {in_place}: {flaw}");
            for schedule in schedules.iter().take(9) {
                text += &format!("\n{schedule}");
            }
            panic!("{text}")
        })
    });
    assert_eq!(costs[0].sent, costs[1].sent);
    costs[0].steps = costs[0].steps.min(costs[1].steps);
    costs[0]
}

fn calls(collective: Collective, size: usize, counts: &[usize]) -> Vec<Call> {
    let roots = if collective.has_root() { vec![0, size / 2, size - 1] } else { vec![0] };
    let counts = if collective == Collective::Barrier { &[0][..] } else { counts };
    let types = if collective.reduces() {
        vec![DataType::F32, DataType::Bf16]
    } else {
        vec![DataType::F32]
    };
    let mut calls = Vec::new();
    for &count in counts {
        for &root in &roots {
            for &data_type in &types {
                let root = Rank::at(root);
                calls.push(Call { collective, count, data_type, op: ReduceOp::Sum, root });
            }
        }
    }
    calls.dedup();
    calls
}

fn for_all(collective: Collective, sizes: impl Iterator<Item = usize>, counts: &[usize]) {
    for size in sizes {
        for algorithm in Algorithm::of(collective) {
            for call in calls(collective, size, counts) {
                prove(algorithm, call, size, CHUNK, WINDOW);
            }
        }
    }
}

fn as_stated(collective: Collective) {
    for size in 1..=33_usize {
        for algorithm in Algorithm::of(collective) {
            // Divides evenly into blocks and halves of blocks, and fits one chunk.
            let even = 64 * size.next_power_of_two() * size;
            for call in calls(collective, size, &[even]) {
                let measured = prove(algorithm, call, size, even, even * 8);
                let stated = (algorithm.stated)(&call, size);
                assert_eq!(measured, stated, "{algorithm}, {call}, {size} ranks: measured, stated");
            }
        }
    }
}

macro_rules! prove_each {
    ($($name:ident: $collective:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn odd_counts_for_every_size_to_64() {
                for_all($collective, 1..=64, &[0, 1, 5, 64, 131]);
            }

            #[test]
            fn a_handful_of_sizes_to_1024() {
                for_all($collective, [100, 129, 255, 512, 1000].into_iter(), &[1027]);
            }

            #[test]
            fn costs_are_as_stated() {
                as_stated($collective);
            }
        }
    )*};
}

prove_each! {
    allreduce: Collective::AllReduce;
}

#[test]
fn timing_tmp() {
    for algorithm in Algorithm::of(Collective::AllReduce) {
        let start = std::time::Instant::now();
        for size in [33, 50, 64] {
            for count in [0, 1, 5, 64, 131] {
            let call = Call { collective: Collective::AllReduce, count, data_type: DataType::F32, op: ReduceOp::Sum, root: Rank(0) };
            prove(algorithm, call, size, CHUNK, WINDOW);
            }
        }
        println!("{algorithm} {:?}", start.elapsed());
        let start = std::time::Instant::now();
        for size in [129, 255] {
            let call = Call { collective: Collective::AllReduce, count: 257, data_type: DataType::F32, op: ReduceOp::Sum, root: Rank(0) };
            prove(algorithm, call, size, CHUNK, WINDOW);
        }
        println!("{algorithm} {:?}", start.elapsed());
        if algorithm.name.ends_with("_shot") { continue; }
        let start = std::time::Instant::now();
        for size in [1000] {
            let call = Call { collective: Collective::AllReduce, count: 1027, data_type: DataType::F32, op: ReduceOp::Sum, root: Rank(0) };
            prove(algorithm, call, size, CHUNK, WINDOW);
        }
        println!("{algorithm} {:?}", start.elapsed());
    }
}
