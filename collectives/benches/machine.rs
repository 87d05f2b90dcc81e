//! What the machine costs per step: one rank's schedule, driven as the engine drives it, but every
//! action is done in full at once, and nothing is moved. The figure is the time per step
//! (criterion's "elements").

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringfold_collectives::{Action, Algorithm, Machine, Plan, Schedule};
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

/// Ranks of the communicator.
const RANKS: usize = 8;

fn schedule(algorithm: &str, count: usize, chunk: usize) -> Schedule {
    let layout = Layout::one_host(RANKS);
    let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
    let call = Call { collective, count, data_type, op, root: Rank(0) };
    let plan = Plan { call, layout: &layout, rank: Rank(1), chunk, window_bytes: LINK_BYTES_MIN };
    let algorithm = Algorithm::named(collective, algorithm).expect("an algorithm of that name");
    (algorithm.schedule)(&plan)
}

/// Runs `schedule` to its end; the number of elements that went through.
fn run(machine: &mut Machine, schedule: &Schedule) -> usize {
    let mut total = 0;
    machine.start(schedule, Some(0));
    while !machine.is_done() {
        for lane in 0..schedule.lanes().len() {
            machine.sweep(lane);
            while let Some(action) = machine.next(schedule, lane) {
                let elements = match action {
                    Action::Send { src, .. } | Action::Put { src, .. } => src.len,
                    Action::Recv { dst, .. }
                    | Action::Copy { dst, .. }
                    | Action::Get { dst, .. }
                    | Action::Reduce { dst, .. } => dst.len,
                    Action::Trade => 0,
                    Action::Tell | Action::Hear { .. } => 1,
                };
                total += elements;
                machine.handle(schedule, lane, black_box(elements));
            }
        }
    }
    total
}

fn per_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("machine");
    let cases = [("ring", 1 << 20, 1 << 10), ("double_tree", 1 << 20, 1 << 10), ("one_shot", 8, 8)];
    for (algorithm, count, chunk) in cases {
        let schedule = schedule(algorithm, count, chunk);
        let steps: usize = schedule.lanes().iter().map(Vec::len).sum();
        group.throughput(Throughput::Elements(steps as u64));
        let mut machine = Machine::new();
        group.bench_function(format!("{algorithm}, {steps} steps"), |bencher| {
            bencher.iter(|| run(&mut machine, &schedule));
        });
    }
    group.finish();
}

criterion_group!(benches, per_step);
criterion_main!(benches);
