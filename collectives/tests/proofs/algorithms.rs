//! Proofs of every algorithm for every number of ranks up to 64, and for some larger ones.

use rayon::prelude::*;
use ringfold_collectives::{Algorithm, Schedule, Stated};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::world::{Pipeline, SMALL, prove, schedules};
use ringfold_harness::Random;

/// Few elements at a time, so that small counts exercise pipelines, and links that accept less than
/// a chunk, as for large messages.
const LONG: Pipeline = Pipeline { chunk: 8, window_bytes: 16 };

fn prove_call(algorithm: &Algorithm, call: Call, size: usize, pipeline: Pipeline) -> Stated {
    // Partial results of short floats are rounded between hosts, and nowhere else.
    let has_hosts = call.data_type.is_short_float() && algorithm.works_anywhere();
    let layout = if has_hosts { Layout::apart(size) } else { Layout::one_host(size) };
    prove_schedules(algorithm, &schedules(algorithm, call, &layout, pipeline), pipeline)
}

fn prove_schedules(algorithm: &Algorithm, schedules: &[Schedule], pipeline: Pipeline) -> Stated {
    let windows = schedules.iter().any(Schedule::needs_windows);
    assert!(
        algorithm.needs_windows() || !windows,
        "{algorithm} accesses ordinary buffers of other ranks"
    );
    let stages = schedules.iter().any(Schedule::needs_staging);
    assert!(algorithm.needs_staging() || !stages, "{algorithm} accesses staging buffers");
    prove(algorithm, schedules, pipeline.window_bytes, schedules.len() <= SMALL)
}

fn roots(collective: Collective, size: usize) -> Vec<usize> {
    if collective.has_root() { vec![0, size / 2, size - 1] } else { vec![0] }
}

fn calls(collective: Collective, roots: &[usize], counts: &[usize]) -> Vec<Call> {
    let counts = if collective == Collective::Barrier { &[0][..] } else { counts };
    let types = if collective.reduces() {
        vec![DataType::F32, DataType::Bf16]
    } else {
        vec![DataType::F32]
    };
    let mut calls = Vec::new();
    for &count in counts {
        for &root in roots {
            for &data_type in &types {
                let (op, root, wire) = (ReduceOp::Sum, Rank::at(root), Wire::default());
                calls.push(Call { collective, count, data_type, op, root, wire });
            }
        }
    }
    calls.dedup();
    calls
}

/// All algorithms for a collective, and each with every value of its parameter.
fn variants(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    Algorithm::of(collective).iter().flat_map(Algorithm::variants)
}

/// Whether each rank sends to every other for each piece. Few pieces are messages enough then.
fn sends_all_to_all(algorithm: &Algorithm) -> bool {
    algorithm.collective.has_blocks() || algorithm.name == "one_shot" || algorithm.needs_staging()
}

/// Counts of larger numbers of ranks, each a prime, in the order of those numbers.
const PRIMES: [usize; 9] = [3, 131, 17, 67, 2, 113, 19, 7, 97];
const FEW_PRIMES: [usize; 5] = [5, 19, 2, 13, 3];

/// Many counts and all roots up to `SMALL` ranks, and beyond that one of each.
fn odd_calls(algorithm: &Algorithm, size: usize) -> Vec<Call> {
    let (collective, is_costly) = (algorithm.collective, sends_all_to_all(algorithm));
    let all = roots(collective, size);
    if size <= SMALL {
        let counts: &[usize] =
            if is_costly { &[0, 1, 5, 19, 64] } else { &[0, 1, 5, 64, 100, 131] };
        return calls(collective, &all, counts);
    }
    let primes = if is_costly { &FEW_PRIMES[..] } else { &PRIMES };
    calls(collective, &[all[size % all.len()]], &[primes[size % primes.len()]])
}

fn for_every_size_to_64(collective: Collective) {
    // The longest proofs first, so that none is left to the end.
    let mut proofs = Vec::new();
    for size in (1..=64).rev() {
        for algorithm in variants(collective) {
            let calls = odd_calls(algorithm, size).into_iter();
            proofs.extend(calls.map(|call| (algorithm, call, size)));
        }
    }
    proofs.into_par_iter().for_each(|(algorithm, call, size)| {
        prove_call(algorithm, call, size, LONG);
    });
}

/// Proves the algorithms that pipeline, with several lanes.
fn by_channels(collective: Collective) {
    let pipelines = |algorithm: &&Algorithm| matches!(algorithm.name, "ring" | "chain");
    let worlds: Vec<_> = [1, 2, 3, 5, 8, 12]
        .into_iter()
        .flat_map(|size| [(size, 2), (size, 3), (size, 8)])
        .collect();
    worlds.into_par_iter().for_each(|(size, channels)| {
        let layout = Layout::one_host(size).with_channels(channels);
        for algorithm in Algorithm::of(collective).iter().filter(pipelines) {
            // Every block has at least as many rounds as there are channels.
            let blocks = if collective == Collective::AllReduce { size } else { 1 };
            let long = 4 * LONG.chunk * channels * blocks;
            let counts = [0, 1, 5, 64, 131, long, long + 7];
            for call in calls(collective, &roots(collective, size), &counts) {
                let schedules = schedules(algorithm, call, &layout, LONG);
                prove_schedules(algorithm, &schedules, LONG);
                let lanes = schedules.iter().map(|it| it.lanes().len()).max().unwrap();
                let is_long = call.count >= long && size > 1;
                assert!(lanes <= channels, "{call}: {lanes} lanes");
                assert!(lanes == channels || !is_long, "{call}: {lanes} lanes");
            }
        }
    });
}

/// One random number of ranks for each pair of bounds. Other ones in every run.
fn for_sizes(collective: Collective, bounds: &[(usize, usize)]) {
    let mut random = Random::seeded();
    let mut proofs = Vec::new();
    for (from, to) in bounds {
        let size = from + random.below(to + 1 - from);
        for algorithm in Algorithm::of(collective) {
            let most = if sends_all_to_all(algorithm) { 3 } else { 2 * size };
            let calls = calls(collective, &roots(collective, size), &[1 + random.below(most)]);
            proofs.push((algorithm, random.pick(&calls), size));
        }
    }
    proofs.into_par_iter().rev().for_each(|(algorithm, call, size)| {
        prove_call(algorithm, call, size, LONG);
    });
}

fn as_stated(collective: Collective) {
    (1..34).into_par_iter().rev().for_each(|size: usize| {
        // Hierarchical algorithms divide by other numbers: see `hosts_tests.rs` of the sources.
        for algorithm in variants(collective).filter(|it| !it.is_hierarchical()) {
            // Divides evenly into blocks and halves of blocks, unless it is the count of a block
            // itself, and fits one chunk and any link or staging buffer.
            let blocks = if collective.has_blocks() { 1 } else { size };
            let even = 32 * size.next_power_of_two() * blocks;
            let pipeline = Pipeline { chunk: even, window_bytes: even * size * 8 };
            for call in calls(collective, &roots(collective, size), &[even]) {
                let measured = prove_call(algorithm, call, size, pipeline);
                let stated = (algorithm.stated)(&call, &Layout::one_host(size));
                assert_eq!(measured, stated, "{algorithm}, {call}, {size} ranks: measured, stated");
            }
            // In small jobs all ranks are peers of each other anyway.
            if size >= 20 {
                let call = calls(collective, &[0], &[even])[0];
                let layout = Layout::one_host(size);
                let schedules = schedules(algorithm, call, &layout, pipeline);
                let is_direct = schedules.iter().all(|it| it.peers().len() + 1 == size);
                let is_stated = algorithm.is_direct() || !algorithm.works_anywhere();
                assert!(is_stated || !is_direct, "{algorithm}, {size} ranks");
                assert!(is_direct || !algorithm.is_direct(), "{algorithm}, {size} ranks");
            }
        }
    });
}

macro_rules! prove_each {
    ($($name:ident: $collective:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn odd_counts_for_every_size_to_64() {
                for_every_size_to_64($collective);
            }

            #[test]
            fn a_size_to_256() {
                for_sizes($collective, &[(65, 256)]);
            }

            #[test]
            #[ignore = "minutes: see tests/long"]
            fn sizes_to_1024() {
                for_sizes($collective, &[(257, 512), (513, 1024)]);
            }

            #[test]
            fn several_channels() {
                by_channels($collective);
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
    allgather: Collective::AllGather;
    reduce_scatter: Collective::ReduceScatter;
    broadcast: Collective::Broadcast;
    reduce: Collective::Reduce;
    barrier: Collective::Barrier;
    alltoall: Collective::AllToAll;
    gather: Collective::Gather;
    scatter: Collective::Scatter;
    scan: Collective::Scan;
    exscan: Collective::Exscan;
}
