//! Times one collective exactly as `bench/peers/timing.c` times a peer's, which describes the
//! method. A change to one needs the same change to the other. `bench/peers/run` starts both.
//!
//! `peer-timing [--windows|--registered] [--type TYPE] COLLECTIVE PLACES SECONDS BATCHES
//! BYTES:CALLS...`. TYPE is a short name as in bf16; the default is f32.
#![expect(clippy::print_stdout, reason = "the results")]
#![expect(clippy::cast_possible_truncation, reason = "a number of calls")]

use std::time::Instant;

use anyhow::{Context, bail};
use ringfold::{Call, Collective, Communicator, DataType, Error, Rank, ReduceOp};
use ringfold_bench::buffers::{CallBuffers, Kind, buffer_bytes};

const USAGE: &str = "peer-timing [--windows|--registered] [--type TYPE] COLLECTIVE PLACES SECONDS \
                     BATCHES BYTES:CALLS...";

/// The command line.
struct Options {
    kind: Kind,
    data_type: DataType,
    collective: Collective,
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

fn main() -> anyhow::Result<()> {
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
        let [collective, places, seconds, batches, cells @ ..] = args else { bail!(USAGE) };
        let collective = match collective.as_str() {
            "all_reduce" => Collective::AllReduce,
            "all_gather" => Collective::AllGather,
            "reduce_scatter" => Collective::ReduceScatter,
            "broadcast" => Collective::Broadcast,
            "reduce" => Collective::Reduce,
            "barrier" => Collective::Barrier,
            "all_to_all" => Collective::AllToAll,
            "gather" => Collective::Gather,
            "scatter" => Collective::Scatter,
            "scan" => Collective::Scan,
            "exscan" => Collective::Exscan,
            other => bail!("{other}: not a timed collective"),
        };
        let cell = |text: &String| {
            let (bytes, calls) = text.split_once(':').context("a cell is BYTES:CALLS")?;
            anyhow::Ok((bytes.parse()?, calls.parse::<usize>()?.max(1)))
        };
        Ok(Self {
            kind,
            data_type,
            collective,
            places: places.clone(),
            seconds: seconds.parse()?,
            batches: batches.parse::<usize>()?.max(1),
            cells: cells.iter().map(cell).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Returns the call with `bytes` in its larger buffer; a block has at least one element.
    fn call(&self, bytes: usize, comm: &Communicator) -> Call {
        let ranks = comm.size();
        let has_blocks = self.collective.has_blocks();
        let elements = bytes / self.data_type.bytes();
        Call {
            collective: self.collective,
            count: (if has_blocks { elements / ranks } else { elements }).max(1),
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
    ) -> Result<(), Error> {
        let call = options.call(bytes, &self.comm);
        let wrong = self.check(&call, in_place)?;
        if in_place {
            self.buffers.clear(&self.comm, &call);
        }
        let first = (calls / 10).max(1);
        let warm = self.time_batch(&call, first, in_place)? / first as f64;
        let bearable = (options.seconds / options.batches as f64 / warm).max(1.0);
        let calls = calls.min(bearable as usize);
        let (seconds, batches) = self.time(options, &call, calls, in_place)?;
        if self.comm.rank() == Rank(0) {
            let place = if in_place { "in" } else { "out" };
            let (used, time) = (buffer_bytes(&call, self.comm.size()), seconds * 1e6);
            println!("cell {place} {bytes} {used} {calls} {batches} {time:.4} {wrong}");
        }
        Ok(())
    }

    /// Makes one call, and returns the number of wrong elements on all ranks.
    fn check(&mut self, call: &Call, in_place: bool) -> Result<u64, Error> {
        let oracle = self.buffers.fill(&self.comm, call, in_place, 0);
        self.perform(call, in_place)?;
        let result = self.buffers.result(&self.comm, call, in_place);
        let mut wrong = [oracle.count_wrong(self.comm.rank(), result) as u64];
        self.comm.all_reduce(&mut wrong, ReduceOp::Sum)?;
        Ok(wrong[0])
    }

    /// Returns the seconds per call of the median batch, and the number of batches.
    fn time(
        &mut self,
        options: &Options,
        call: &Call,
        calls: usize,
        in_place: bool,
    ) -> Result<(f64, usize), Error> {
        let (mut times, mut spent) = (Vec::with_capacity(options.batches), 0.0);
        while times.len() < options.batches && (times.is_empty() || spent < options.seconds) {
            let time = self.time_batch(call, calls, in_place)?;
            spent += time;
            times.push(time / calls as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[times.len() / 2], times.len()))
    }

    /// Returns the seconds that `calls` calls take on the slowest rank.
    fn time_batch(&mut self, call: &Call, calls: usize, in_place: bool) -> Result<f64, Error> {
        self.comm.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            self.perform(call, in_place)?;
        }
        let mut slowest = [start.elapsed().as_secs_f64()];
        self.comm.all_reduce(&mut slowest, ReduceOp::Max)?;
        Ok(slowest[0])
    }

    fn perform(&mut self, call: &Call, in_place: bool) -> Result<(), Error> {
        if call.collective == Collective::Barrier {
            return self.comm.barrier();
        }
        self.buffers.perform(&mut self.comm, call, in_place)
    }
}
