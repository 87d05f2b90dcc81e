//! Times one collective exactly as `bench/peers/timing.c` times a peer's, which describes the
//! method. A change to one needs the same change to the other. `bench/peers/run` starts both.
//!
//! `peer-timing [--windows|--registered] COLLECTIVE PLACES SECONDS BATCHES BYTES:CALLS...`
#![expect(clippy::print_stdout, reason = "the results")]
#![expect(clippy::cast_possible_truncation, reason = "a number of calls")]

use std::time::Instant;

use anyhow::{Context, bail};
use bytemuck::{cast_slice, cast_slice_mut};
use ringfold::{
    Buffers, Call, Collective, Communicator, DataType, Error, Rank, ReduceOp, Window, Windows, Wire,
};

/// The command line.
struct Options {
    buffers: Kind,
    collective: Collective,
    places: String,
    /// The time after which a cell starts no more batches.
    seconds: f64,
    batches: usize,
    /// The bytes and the calls of a batch, for each cell.
    cells: Vec<(usize, usize)>,
}

/// The kind of memory for the buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ordinary,
    /// Made by the communicator, and used as slices.
    Registered,
    Windows,
}

/// Makes the calls, with the same two buffers for all cells.
struct Timer {
    comm: Communicator,
    collective: Collective,
    memory: Memory,
}

/// The input and the output.
enum Memory {
    Ordinary([Vec<f32>; 2]),
    Registered([Window<f32>; 2]),
    Windows([Window<f32>; 2]),
}

impl Memory {
    fn both(&mut self) -> [&mut [f32]; 2] {
        match self {
            Self::Ordinary(both) => both.each_mut().map(|buffer| &mut buffer[..]),
            Self::Registered(both) | Self::Windows(both) => {
                both.each_mut().map(|buffer| &mut buffer[..])
            }
        }
    }

    fn input(&mut self) -> &mut [f32] {
        let [input, _] = self.both();
        input
    }

    fn output(&mut self) -> &mut [f32] {
        let [_, output] = self.both();
        output
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::read(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let comm = Communicator::init()?;
    let memory = Memory::Ordinary([Vec::new(), Vec::new()]);
    let mut timer = Timer { comm, collective: options.collective, memory };
    let length = |(bytes, _): &(usize, usize)| timer.length(timer.count(*bytes));
    let longest = options.cells.iter().map(length).max().unwrap_or(0);
    let comm = &mut timer.comm;
    timer.memory = match options.buffers {
        Kind::Ordinary => Memory::Ordinary([vec![0.0; longest], vec![0.0; longest]]),
        Kind::Registered => Memory::Registered([comm.alloc(longest)?, comm.alloc(longest)?]),
        Kind::Windows => Memory::Windows([comm.alloc(longest)?, comm.alloc(longest)?]),
    };
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
        let (buffers, args) = match args {
            [first, rest @ ..] if first == "--windows" => (Kind::Windows, rest),
            [first, rest @ ..] if first == "--registered" => (Kind::Registered, rest),
            args => (Kind::Ordinary, args),
        };
        let [collective, places, seconds, batches, cells @ ..] = args else {
            bail!(
                "peer-timing [--windows|--registered] COLLECTIVE PLACES SECONDS BATCHES \
                 BYTES:CALLS..."
            );
        };
        let collective = match collective.as_str() {
            "all_reduce" => Collective::AllReduce,
            "all_gather" => Collective::AllGather,
            "reduce_scatter" => Collective::ReduceScatter,
            "broadcast" => Collective::Broadcast,
            "reduce" => Collective::Reduce,
            "barrier" => Collective::Barrier,
            other => bail!("{other}: not a timed collective"),
        };
        let cell = |text: &String| {
            let (bytes, calls) = text.split_once(':').context("a cell is BYTES:CALLS")?;
            anyhow::Ok((bytes.parse()?, calls.parse::<usize>()?.max(1)))
        };
        Ok(Self {
            buffers,
            collective,
            places: places.clone(),
            seconds: seconds.parse()?,
            batches: batches.parse::<usize>()?.max(1),
            cells: cells.iter().map(cell).collect::<anyhow::Result<_>>()?,
        })
    }
}

impl Timer {
    /// Returns whether one of the two buffers has a block for every rank.
    fn has_blocks(&self) -> bool {
        matches!(self.collective, Collective::AllGather | Collective::ReduceScatter)
    }

    /// Returns the elements of a call with `bytes` in its larger buffer; at least one.
    fn count(&self, bytes: usize) -> usize {
        let elements = bytes / size_of::<f32>();
        (if self.has_blocks() { elements / self.comm.size() } else { elements }).max(1)
    }

    /// Returns the elements of the larger buffer.
    fn length(&self, count: usize) -> usize {
        if self.has_blocks() { count * self.comm.size() } else { count }
    }

    fn measure(
        &mut self,
        options: &Options,
        bytes: usize,
        calls: usize,
        in_place: bool,
    ) -> Result<(), Error> {
        let count = self.count(bytes);
        let length = self.length(count);
        self.fill(count, in_place);
        self.perform(count, in_place)?;
        let wrong = self.wrong(count, in_place)?;
        if in_place {
            // Repeated sums in place of nonzero values would overflow.
            self.memory.output()[..length].fill(0.0);
        }
        let first = (calls / 10).max(1);
        let warm = self.time_batch(count, first, in_place)? / first as f64;
        let bearable = (options.seconds / options.batches as f64 / warm).max(1.0);
        let calls = calls.min(bearable as usize);
        let (seconds, batches) = self.time(options, count, calls, in_place)?;
        if self.comm.rank() == Rank(0) {
            let place = if in_place { "in" } else { "out" };
            let (used, time) = (length * size_of::<f32>(), seconds * 1e6);
            println!("cell {place} {bytes} {used} {calls} {batches} {time:.4} {wrong}");
        }
        Ok(())
    }

    /// Returns the seconds per call of the median batch, and the number of batches.
    fn time(
        &mut self,
        options: &Options,
        count: usize,
        calls: usize,
        in_place: bool,
    ) -> Result<(f64, usize), Error> {
        let (mut times, mut spent) = (Vec::with_capacity(options.batches), 0.0);
        while times.len() < options.batches && (times.is_empty() || spent < options.seconds) {
            let time = self.time_batch(count, calls, in_place)?;
            spent += time;
            times.push(time / calls as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[times.len() / 2], times.len()))
    }

    /// Returns the seconds that `calls` calls take on the slowest rank.
    fn time_batch(&mut self, count: usize, calls: usize, in_place: bool) -> Result<f64, Error> {
        self.comm.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            self.perform(count, in_place)?;
        }
        let mut slowest = [start.elapsed().as_secs_f64()];
        self.comm.all_reduce(&mut slowest, ReduceOp::Max)?;
        Ok(slowest[0])
    }

    fn perform(&mut self, count: usize, in_place: bool) -> Result<(), Error> {
        let call = Call {
            collective: self.collective,
            count,
            data_type: DataType::F32,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: Wire::default(),
        };
        if self.collective == Collective::Barrier {
            return self.comm.barrier();
        }
        let (ranks, length) = (self.comm.size(), self.length(count));
        if let Memory::Windows([input, output]) = &mut self.memory {
            let windows = match in_place {
                true => Windows::InPlace(output),
                false => Windows::Apart { input, output },
            };
            return self.comm.perform_in_windows(&call, windows, 0);
        }
        let [input, output] = self.memory.both();
        let buffers = if in_place {
            Buffers::InPlace(cast_slice_mut(&mut output[..length]))
        } else {
            Buffers::Apart {
                input: cast_slice(&input[..call.input_len(ranks)]),
                output: cast_slice_mut(&mut output[..call.output_len(ranks)]),
            }
        };
        self.comm.perform(&call, buffers)
    }

    fn fill(&mut self, count: usize, in_place: bool) {
        let rank = self.comm.rank().index();
        let length = self.length(count);
        self.memory.output()[..length].fill(f32::from_bits(0xa5a5_a5a5));
        let gathers = self.collective == Collective::AllGather;
        let own = if gathers { count } else { length };
        let at = if in_place && gathers { rank * count } else { 0 };
        let brings = self.collective != Collective::Broadcast || rank == 0;
        let to = if in_place { self.memory.output() } else { self.memory.input() };
        if brings {
            for (index, element) in to[at..at + own].iter_mut().enumerate() {
                *element = value(rank, index);
            }
        }
    }

    /// Counts the wrong elements on all ranks.
    fn wrong(&mut self, count: usize, in_place: bool) -> Result<u64, Error> {
        let (rank, ranks) = (self.comm.rank().index(), self.comm.size());
        let collective = self.collective;
        let expected = |index: usize| match collective {
            Collective::AllReduce | Collective::Reduce => value_of_all(ranks, index),
            Collective::ReduceScatter => value_of_all(ranks, rank * count + index),
            Collective::AllGather => value(index / count, index % count),
            _ => value(0, index),
        };
        let scatters = self.collective == Collective::ReduceScatter;
        let at = if scatters && in_place { rank * count } else { 0 };
        let length = match collective {
            Collective::Barrier => 0,
            Collective::Reduce if rank != 0 => 0,
            Collective::ReduceScatter => count,
            _ => self.length(count),
        };
        let result = self.memory.output()[at..at + length].iter().enumerate();
        let mut wrong = [result.filter(|(index, got)| **got != expected(*index)).count() as u64];
        self.comm.all_reduce(&mut wrong, ReduceOp::Sum)?;
        Ok(wrong[0])
    }
}

/// Returns a rank's value at `index`, small enough for exact sums.
fn value(rank: usize, index: usize) -> f32 {
    (rank + 1) as f32 * (index % 7 + 1) as f32
}

fn value_of_all(ranks: usize, index: usize) -> f32 {
    (ranks * (ranks + 1) / 2) as f32 * (index % 7 + 1) as f32
}
