//! Proofs of random sequences of calls on shared links, signals and staging buffers.

use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, check_sequence};
use ringfold_collectives::select::is_possible;
use ringfold_collectives::{Algorithm, Schedule};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::world::{Pipeline, schedules};
use ringfold_harness::Random;

/// Ranks of one host or of several, with one lane or more.
fn any_layout(random: &mut Random) -> Layout {
    let size = 1 + random.below(8);
    let layout = match random.below(3) {
        0 => Layout::hosts_of(1 + random.below(4), size),
        _ => Layout::one_host(size).sharing_memory(true),
    };
    layout.with_channels(1 + random.below(3))
}

/// A call of any collective by any algorithm that the layout allows.
fn any_call(random: &mut Random, layout: &Layout) -> (&'static Algorithm, Call) {
    loop {
        let collective = random.pick(&Collective::ALL);
        let all: Vec<_> = Algorithm::of(collective).iter().flat_map(Algorithm::variants).collect();
        let count = if collective == Collective::Barrier { 0 } else { random.below(70) };
        let data_type = random.pick(&[DataType::F32, DataType::Bf16, DataType::F64, DataType::U8]);
        let (op, root) = (ReduceOp::Sum, Rank::at(random.below(layout.size())));
        let root = if collective.has_root() { root } else { Rank(0) };
        let call = Call { collective, count, data_type, op, root, wire: Wire::default() };
        let algorithm = random.pick(&all);
        // Buffers may be windows where ranks share memory.
        let in_windows = algorithm.needs_windows() && layout.shares_memory();
        let is_near = layout.hosts() == 1 || algorithm.works_anywhere();
        let is_possible = in_windows || is_possible(algorithm, &call, layout);
        if is_near && is_possible && !algorithm.needs_provider() {
            return (algorithm, call);
        }
    }
}

fn prove(seed: u64) {
    let random = &mut Random::new(seed);
    let layout = any_layout(random);
    // Links that hold parts of a call, or several calls.
    let window_bytes = random.pick(&[16, 40, 256, 4096]);
    let pipeline = Pipeline { chunk: 1 + random.below(12), window_bytes };
    let conditions =
        Conditions { in_place: random.chance(50), window_bytes, offers: random.chance(30) };
    let mut calls: Vec<Vec<Schedule>> = Vec::new();
    for _ in 0..2 + random.below(7) {
        let (algorithm, call) = any_call(random, &layout);
        calls.push(schedules(algorithm, call, &layout, pipeline));
    }
    let Err(mut flaw) = check_sequence(&calls, conditions) else { return };
    // The calls that the flaw needs.
    for at in (0..calls.len()).rev() {
        let call = calls.remove(at);
        match check_sequence(&calls, conditions) {
            Err(other) => flaw = other,
            Ok(()) => calls.insert(at, call),
        }
    }
    let names = calls.iter().map(|it| format!("\n{} by {}", it[0].call(), it[0].algorithm()));
    panic!(
        "seed {seed}, {} ranks, {pipeline:?}, {conditions:?}: {flaw}{}",
        layout.size(),
        names.collect::<String>()
    );
}

fn prove_many(sequences: usize) {
    let mut random = Random::seeded();
    let seeds: Vec<u64> = (0..sequences).map(|_| random.bits()).collect();
    seeds.into_par_iter().for_each(prove);
}

#[test]
fn sequences_of_any_calls() {
    prove_many(2000);
}

#[test]
#[ignore = "minutes: see tests/long"]
fn many_sequences() {
    prove_many(400_000);
}
