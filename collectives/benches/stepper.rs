//! The cost of the stepper for each operation. It runs one rank's program over ports that do
//! everything at once and move nothing. The figure is the time for each operation (criterion's
//! "elements").

use std::convert::Infallible;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringfold_collectives::{
    Algorithm, Exchanged, Ports, Program, Progress, Reduction, ScheduleParams, Source, Stepper,
    Stores, Target, lower,
};
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Slice, Wire};

/// Ranks of the communicator.
const RANKS: usize = 8;

fn program(algorithm: &str, count: usize, chunk: usize) -> Program {
    let layout = Layout::one_host(RANKS);
    let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
    let call = Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() };
    let plan = ScheduleParams {
        call,
        layout: &layout,
        rank: Rank(1),
        chunk,
        window_bytes: LINK_BYTES_MIN,
    };
    let algorithm = Algorithm::named(collective, algorithm).expect("an algorithm of that name");
    lower(&(algorithm.schedule)(&plan), Target { in_place: true, ..Target::default() })
}

/// Ports that do everything at once and move nothing. They count the elements that go through.
struct Nowhere(usize);

impl Nowhere {
    fn pass(&mut self, slice: Slice) -> usize {
        self.0 += slice.len;
        black_box(slice.len)
    }
}

impl Ports for Nowhere {
    type Error = Infallible;

    fn exchange(&mut self, _: Rank, _: Slice, _: Slice) -> Result<Exchanged, Infallible> {
        Ok(Exchanged::Nothing)
    }

    fn send(&mut self, _: usize, _: Rank, src: Slice, _: bool) -> Result<usize, Infallible> {
        Ok(self.pass(src))
    }

    fn receive(&mut self, _: usize, _: Rank, dst: Slice, _: Stores) -> Result<usize, Infallible> {
        Ok(self.pass(dst))
    }

    fn copy(&mut self, _: usize, src: Slice, _: Slice, _: Stores) -> Result<(), Infallible> {
        self.pass(src);
        Ok(())
    }

    fn reduce(&mut self, _: usize, reduction: Reduction<'_>) -> Result<usize, Infallible> {
        Ok(self.pass(reduction.dst))
    }

    fn reduce_to_all(
        &mut self,
        _: usize,
        dst: Slice,
        _: &[Source],
        _: Stores,
    ) -> Result<(), Infallible> {
        self.pass(dst);
        Ok(())
    }

    fn put(&mut self, _: usize, _: Rank, src: Slice) -> Result<(), Infallible> {
        self.pass(src);
        Ok(())
    }

    fn get(
        &mut self,
        _: usize,
        _: Rank,
        src: Slice,
        _: Slice,
        _: Stores,
    ) -> Result<(), Infallible> {
        self.pass(src);
        Ok(())
    }

    fn signal(&mut self, _: usize) -> Result<(), Infallible> {
        Ok(())
    }

    fn wait(&mut self, _: usize, _: Rank) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn swap(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Runs `program` to its end, and returns the number of elements that went through.
fn run(stepper: &mut Stepper, program: &Program) -> usize {
    let mut ports = Nowhere(0);
    stepper.start(program);
    while stepper.advance(program, &mut ports, usize::MAX) != Ok(Progress::Done) {}
    ports.0
}

fn per_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stepper");
    let cases = [("ring", 1 << 20, 1 << 10), ("double_tree", 1 << 20, 1 << 10), ("one_shot", 8, 8)];
    for (algorithm, count, chunk) in cases {
        let program = program(algorithm, count, chunk);
        let steps: usize = program.lanes().iter().map(Vec::len).sum();
        group.throughput(Throughput::Elements(steps as u64));
        let mut stepper = Stepper::new();
        group.bench_function(format!("{algorithm}, {steps} operations"), |bencher| {
            bencher.iter(|| run(&mut stepper, &program));
        });
    }
    group.finish();
}

criterion_group!(benches, per_step);
criterion_main!(benches);
