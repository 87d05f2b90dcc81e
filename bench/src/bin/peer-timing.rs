//! Times one operation exactly as `bench/compare/programs/timing.c` times a peer's, which describes
//! the method. A change to one needs the same change to the other. `bench/compare/run peers` starts
//! both.
//!
//! `peer-timing [--windows|--registered] [--type TYPE] OPERATION PLACES SECONDS BATCHES
//! BYTES:CALLS...`. TYPE is a short name as in bf16; the default is f32.
#![expect(clippy::cast_possible_truncation, reason = "a number of calls")]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use ringfold::{Call, Collective, Communicator, DataType, Error, Rank, ReduceOp};
use ringfold_bench::Test;
use ringfold_bench::buffers::{CallBuffers, Kind, buffer_bytes};
use ringfold_launcher::{Stream, failed};

const USAGE: &str = "peer-timing [--windows|--registered] [--type TYPE] OPERATION PLACES SECONDS \
                     BATCHES BYTES:CALLS...";

/// The operations and their names.
const TESTS: [(&str, Test); 17] = [
    ("all_reduce", Test::Collective(Collective::AllReduce)),
    ("all_gather", Test::Collective(Collective::AllGather)),
    ("reduce_scatter", Test::Collective(Collective::ReduceScatter)),
    ("broadcast", Test::Collective(Collective::Broadcast)),
    ("reduce", Test::Collective(Collective::Reduce)),
    ("barrier", Test::Collective(Collective::Barrier)),
    ("all_to_all", Test::Collective(Collective::AllToAll)),
    ("gather", Test::Collective(Collective::Gather)),
    ("scatter", Test::Collective(Collective::Scatter)),
    ("scan", Test::Collective(Collective::Scan)),
    ("exscan", Test::Collective(Collective::Exscan)),
    ("send_recv", Test::SendRecv),
    ("all_to_all_v", Test::AllToAllV),
    ("gather_v", Test::GatherV),
    ("scatter_v", Test::ScatterV),
    ("all_gather_v", Test::AllGatherV),
    ("reduce_scatter_v", Test::ReduceScatterV),
];

/// The command line.
struct Options {
    kind: Kind,
    data_type: DataType,
    test: Test,
    places: String,
    /// The time after which a cell starts no more batches.
    seconds: f64,
    batches: usize,
    /// The bytes and the calls of a batch, for each cell.
    cells: Vec<(usize, usize)>,
}

/// Makes the calls, with the same two buffers for all cells.
struct Timer {
    comm: Communicator,
    buffers: CallBuffers,
}

fn main() -> ExitCode {
    run().map_or_else(|error| failed("error", &*error, 1), |()| ExitCode::SUCCESS)
}

fn run() -> anyhow::Result<()> {
    let options = Options::read(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let mut comm = Communicator::init()?;
    let ranks = comm.size();
    let lengths = options.cells.iter();
    let lengths = lengths.map(|&(size, _)| buffer_bytes(&options.call(size, &comm), ranks));
    let longest = lengths.max().unwrap_or(0);
    let buffers = CallBuffers::new(&mut comm, options.kind, longest)?;
    let mut timer = Timer { comm, buffers };
    for &(bytes, calls) in &options.cells {
        for (place, in_place) in [("out", false), ("in", true)] {
            if options.places.contains(place) {
                timer.measure(&options, bytes, calls, in_place)?;
            }
        }
    }
    Ok(timer.comm.leave()?)
}

impl Options {
    fn read(args: &[String]) -> anyhow::Result<Self> {
        let (kind, args) = match args {
            [first, rest @ ..] if first == "--windows" => (Kind::Windows, rest),
            [first, rest @ ..] if first == "--registered" => (Kind::Registered, rest),
            args => (Kind::Ordinary, args),
        };
        let (data_type, args) = match args {
            [first, name, rest @ ..] if first == "--type" => {
                (name.parse().with_context(|| format!("--type {name}"))?, rest)
            }
            args => (DataType::F32, args),
        };
        let [name, places, seconds, batches, cells @ ..] = args else { bail!(USAGE) };
        let known = TESTS.iter().find(|(known, _)| known == name);
        let (_, test) = *known.with_context(|| format!("{name}: not a timed operation"))?;
        let cell = |text: &String| {
            let (bytes, calls) = text.split_once(':').context("a cell is BYTES:CALLS")?;
            anyhow::Ok((bytes.parse()?, calls.parse::<usize>()?.max(1)))
        };
        Ok(Self {
            kind,
            data_type,
            test,
            places: places.clone(),
            seconds: seconds.parse()?,
            batches: batches.parse::<usize>()?.max(1),
            cells: cells.iter().map(cell).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Returns the call with `bytes` in its larger buffer; a block, and a share of uneven parts,
    /// has at least one element.
    fn call(&self, bytes: usize, comm: &Communicator) -> Call {
        let (test, collective) = (self.test, self.test.collective());
        let shares = if test.is_uneven() { test.shares(comm.size()) } else { 1 };
        let blocks = if collective.has_blocks() { comm.size() } else { shares };
        let elements = bytes / self.data_type.bytes();
        Call {
            collective,
            count: (elements / blocks).max(1) * shares,
            data_type: self.data_type,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: comm.wire(),
        }
    }
}

impl Timer {
    fn measure(
        &mut self,
        options: &Options,
        bytes: usize,
        calls: usize,
        in_place: bool,
    ) -> anyhow::Result<()> {
        let call = options.call(bytes, &self.comm);
        let test = (options.test, &call);
        let wrong = self.check(test, in_place)?;
        if in_place {
            self.buffers.clear(&self.comm, &call);
        }
        let first = (calls / 10).max(1);
        let warm = self.time_batch(test, first, in_place)? / first as f64;
        let bearable = (options.seconds / options.batches as f64 / warm).max(1.0);
        let calls = calls.min(bearable as usize);
        let (seconds, batches) = self.time(options, test, calls, in_place)?;
        if self.comm.rank() == Rank(0) {
            let place = if in_place { "in" } else { "out" };
            let (used, time) = (buffer_bytes(&call, self.comm.size()), seconds * 1e6);
            Stream::Out.write_all(
                format!("cell {place} {bytes} {used} {calls} {batches} {time:.4} {wrong}\n")
                    .as_bytes(),
            )?;
        }
        Ok(())
    }

    /// Makes one call, and returns the number of wrong elements on all ranks.
    fn check(&mut self, test: (Test, &Call), in_place: bool) -> Result<u64, Error> {
        let oracle = self.buffers.fill(&self.comm, test.1, in_place, 0);
        self.perform(test, in_place)?;
        let mut wrong = [self.buffers.count_wrong(&self.comm, test, in_place, &oracle) as u64];
        self.comm.all_reduce(&mut wrong, ReduceOp::Sum)?;
        Ok(wrong[0])
    }

    /// Returns the seconds per call of the median batch, and the number of batches.
    fn time(
        &mut self,
        options: &Options,
        test: (Test, &Call),
        calls: usize,
        in_place: bool,
    ) -> Result<(f64, usize), Error> {
        let (mut times, mut spent) = (Vec::with_capacity(options.batches), 0.0);
        while times.len() < options.batches && (times.is_empty() || spent < options.seconds) {
            let time = self.time_batch(test, calls, in_place)?;
            spent += time;
            times.push(time / calls as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[times.len() / 2], times.len()))
    }

    /// Returns the seconds that `calls` calls take on the slowest rank.
    fn time_batch(
        &mut self,
        test: (Test, &Call),
        calls: usize,
        in_place: bool,
    ) -> Result<f64, Error> {
        self.comm.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            self.perform(test, in_place)?;
        }
        let mut slowest = [start.elapsed().as_secs_f64()];
        self.comm.all_reduce(&mut slowest, ReduceOp::Max)?;
        Ok(slowest[0])
    }

    fn perform(&mut self, test: (Test, &Call), in_place: bool) -> Result<(), Error> {
        if test.1.collective == Collective::Barrier {
            return self.comm.barrier();
        }
        self.buffers.perform(&mut self.comm, test, in_place)
    }
}
