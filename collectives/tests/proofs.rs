//! Proofs of every algorithm for every number of ranks up to 64, and for some larger ones.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, check};
use ringfold_collectives::{Algorithm, Schedule, ScheduleParams, Stated};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

/// Elements that pipelines pass on at a time. Few, so that small counts exercise pipelines.
const CHUNK: usize = 8;

/// Bytes that a link accepts: less than a chunk, as for large messages.
const WINDOW: usize = 16;

/// Ranks up to which proofs also cover links with rendezvous sends.
const OFFERS_MAX: usize = 17;

fn schedules(
    algorithm: &Algorithm,
    call: Call,
    layout: &Layout,
    chunk: usize,
    window_bytes: usize,
) -> Vec<Schedule> {
    let plan = |rank| ScheduleParams { call, layout, rank: Rank::at(rank), chunk, window_bytes };
    (0..layout.size()).map(|rank| (algorithm.schedule)(&plan(rank))).collect()
}

fn prove(
    algorithm: &Algorithm,
    call: Call,
    size: usize,
    chunk: usize,
    window_bytes: usize,
) -> Stated {
    // Partial results of short floats are rounded between hosts, and nowhere else.
    let has_hosts = call.data_type.is_short_float() && algorithm.works_anywhere();
    let layout = if has_hosts { Layout::apart(size) } else { Layout::one_host(size) };
    let schedules = schedules(algorithm, call, &layout, chunk, window_bytes);
    prove_schedules(algorithm, &schedules, window_bytes)
}

fn prove_schedules(algorithm: &Algorithm, schedules: &[Schedule], window_bytes: usize) -> Stated {
    let (call, size) = (schedules[0].call(), schedules.len());
    let windows = schedules.iter().any(Schedule::needs_windows);
    assert!(
        algorithm.needs_windows() || !windows,
        "{algorithm} accesses ordinary buffers of other ranks"
    );
    let stages = schedules.iter().any(Schedule::needs_staging);
    assert!(algorithm.needs_staging() || !stages, "{algorithm} accesses staging buffers");
    let proven = |in_place, offers| {
        check(schedules, Conditions { in_place, window_bytes, offers }).unwrap_or_else(|flaw| {
            let how = format!("in place {in_place}, with offers {offers}");
            let mut text = format!("{algorithm}, {call}, {size} ranks, {how}: {flaw}");
            for schedule in schedules.iter().take(9) {
                text += &format!("\n{schedule}");
            }
            panic!("{text}")
        })
    };
    let mut costs = [false, true].map(|in_place| proven(in_place, false));
    if size <= OFFERS_MAX && !windows && !stages {
        for in_place in [false, true] {
            proven(in_place, true);
        }
    }
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
                calls.push(Call {
                    collective,
                    count,
                    data_type,
                    op: ReduceOp::Sum,
                    root,
                    wire: Wire::default(),
                });
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

fn for_every_size_to_64(collective: Collective) {
    // The longest proofs first, so that none is left to the end.
    let mut proofs = Vec::new();
    for size in (1..=64).rev() {
        for algorithm in variants(collective) {
            let costly = size > 16 && sends_all_to_all(algorithm);
            let counts = if costly { &[0, 1, 5, 19][..] } else { &[0, 1, 5, 64, 100, 131] };
            let calls = calls(collective, size, counts).into_iter();
            proofs.extend(calls.map(|call| (algorithm, call, size)));
        }
    }
    proofs.into_par_iter().for_each(|(algorithm, call, size)| {
        prove(algorithm, call, size, CHUNK, WINDOW);
    });
}

/// Proves the algorithms that pipeline, with several lanes.
fn by_channels(collective: Collective) {
    let pipelines = |algorithm: &&Algorithm| matches!(algorithm.name, "ring" | "chain");
    let worlds: Vec<_> = (1..=12).flat_map(|size| [(size, 2), (size, 3), (size, 8)]).collect();
    worlds.into_par_iter().for_each(|(size, channels)| {
        let layout = Layout::one_host(size).with_channels(channels);
        for algorithm in Algorithm::of(collective).iter().filter(pipelines) {
            // Every block has at least as many rounds as there are channels.
            let blocks = if collective == Collective::AllReduce { size } else { 1 };
            let long = 4 * CHUNK * channels * blocks;
            for call in calls(collective, size, &[0, 1, 5, 64, 131, long, long + 7]) {
                let schedules = schedules(algorithm, call, &layout, CHUNK, WINDOW);
                prove_schedules(algorithm, &schedules, WINDOW);
                let lanes = schedules.iter().map(|it| it.lanes().len()).max().unwrap();
                let is_long = call.count >= long && size > 1;
                assert!(lanes <= channels, "{call}: {lanes} lanes");
                assert!(lanes == channels || !is_long, "{call}: {lanes} lanes");
            }
        }
    });
}

/// Other sizes in every run: from 65 to 256, to 512 and to 1024.
fn for_a_handful_of_sizes(collective: Collective) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let mut seed =
        option_env!("RINGFOLD_PROOFS_SEED").map_or_else(|| now.into(), |s| s.parse().unwrap());
    println!("RINGFOLD_PROOFS_SEED={seed}");
    let mut random = |from: usize, to: usize| {
        seed = splitmix(seed);
        from + usize::try_from(seed >> 33).unwrap() % (to + 1 - from)
    };
    let mut proofs = Vec::new();
    for (from, to) in [(65, 256), (257, 512), (513, 1024)] {
        let size = random(from, to);
        for algorithm in Algorithm::of(collective) {
            let count = random(1, if sends_all_to_all(algorithm) { 3 } else { 2 * size });
            let calls = calls(collective, size, &[count]);
            proofs.push((algorithm, calls[random(0, calls.len() - 1)], size));
        }
    }
    proofs.into_par_iter().rev().for_each(|(algorithm, call, size)| {
        prove(algorithm, call, size, CHUNK, WINDOW);
    });
}

/// Whether each rank sends to every other for each piece. Few pieces are messages enough then.
fn sends_all_to_all(algorithm: &Algorithm) -> bool {
    algorithm.collective.has_blocks() || algorithm.name == "one_shot" || algorithm.needs_staging()
}

fn splitmix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn as_stated(collective: Collective) {
    (1..34).into_par_iter().rev().for_each(|size: usize| {
        // Hierarchical algorithms divide by other numbers: see `hosts.rs`.
        for algorithm in variants(collective).filter(|it| !it.is_hierarchical()) {
            // Divides evenly into blocks and halves of blocks, unless it is the count of a block
            // itself, and fits one chunk and any link or staging buffer.
            let blocks = if collective.has_blocks() { 1 } else { size };
            let even = 32 * size.next_power_of_two() * blocks;
            for call in calls(collective, size, &[even]) {
                let measured = prove(algorithm, call, size, even, even * size * 8);
                let stated = (algorithm.stated)(&call, &Layout::one_host(size));
                assert_eq!(measured, stated, "{algorithm}, {call}, {size} ranks: measured, stated");
                assert_peers(algorithm, call, size, even);
            }
        }
    });
}

/// Checks that ranks exchange messages with exactly the peers that the algorithm states.
fn assert_peers(algorithm: &Algorithm, call: Call, size: usize, chunk: usize) {
    let layout = Layout::one_host(size);
    let schedules = schedules(algorithm, call, &layout, chunk, chunk * size * 8);
    let measured: Vec<Vec<Rank>> = schedules.iter().map(Schedule::peers).collect();
    let stated = algorithm.peers(&call, &layout);
    assert_eq!(measured, stated, "{algorithm}, {call}, {size} ranks: measured, stated");
    // In small jobs all ranks are peers of each other anyway.
    let is_direct =
        stated.iter().all(|peers| peers.len() + 1 == size) && algorithm.works_anywhere();
    assert!(size < 20 || algorithm.is_direct() == is_direct, "{algorithm}, {size} ranks");
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
            fn a_handful_of_sizes_to_1024() {
                for_a_handful_of_sizes($collective);
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
