//! Times all algorithms that can perform a call, and ringfold's own choice, in turn. Every rank of
//! a job runs it. `bench/compare/run regret` starts it and reads the lines of rank 0, one for each
//! cell.
//!
//! `algorithm-timing SECONDS ROUNDS COLLECTIVE:TYPE:BYTES...`. A cell gets about SECONDS for its
//! batches, after the trials that find the length of a batch.
#![expect(clippy::cast_possible_truncation, reason = "numbers of calls and rounds")]

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use ringfold::config::Constraints;
use ringfold::{Call, Collective, Communicator, Config, DataType, Error, Rank, ReduceOp};
use ringfold_bench::Test;
use ringfold_bench::buffers::{CallBuffers, Kind, buffer_bytes};
use ringfold_launcher::{Stream, failed};
use serde_json::json;

const USAGE: &str = "algorithm-timing SECONDS ROUNDS COLLECTIVE:TYPE:BYTES...";

/// The name of ringfold's own choice among the candidates.
const CHOICE: &str = "choice";

/// Candidates whose trial takes this multiple of the shortest are not timed.
const TRIAL_RATIO_MAX: f64 = 4.0;

/// Seconds of a long call. Its trial is a valid round.
const LONG: f64 = 0.1;

/// Of long calls, candidates that took this multiple of the shortest time at the next smaller size
/// have no trial.
const SMALLER_RATIO_MAX: f64 = 2.0;

/// Seconds and most calls of a trial of short calls.
const TRIAL_SECONDS: f64 = 0.005;
const TRIAL_CALLS_MAX: f64 = 10.0;

/// The most calls of a batch.
const CALLS_MAX: f64 = 5000.0;

/// The command line.
struct Options {
    seconds: f64,
    rounds: usize,
    cells: Vec<Cell>,
}

/// A collective, a type and the bytes of the larger buffer.
#[derive(Clone, Copy)]
struct Cell {
    collective: Collective,
    data_type: DataType,
    bytes: usize,
}

/// One algorithm, or ringfold's choice.
struct Candidate {
    name: &'static str,
    allowed: Constraints,
    /// Seconds of a call in the trial.
    trial: f64,
    /// Seconds of a call in each round.
    times: Vec<f64>,
    wrong: u64,
}

/// The bytes and the candidates' times of the latest size of a collective and type.
type Smaller = (usize, Vec<(&'static str, f64)>);

/// Makes the calls, with the same two buffers for all cells.
struct Timer {
    comm: Communicator,
    buffers: CallBuffers,
    /// The algorithms that the environment allows for ringfold's choice.
    own: Constraints,
    smaller: HashMap<(Collective, DataType), Smaller>,
}

fn main() -> ExitCode {
    run().map_or_else(|error| failed("error", &*error, 1), |()| ExitCode::SUCCESS)
}

fn run() -> anyhow::Result<()> {
    let options = Options::read(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let config = Config::from_env()?;
    let own = config.algorithms.clone();
    let mut comm = Communicator::init_with(&config)?;
    let lengths = options.cells.iter();
    let lengths = lengths.map(|cell| buffer_bytes(&cell.call(&comm), comm.size()));
    let longest = lengths.max().unwrap_or(0);
    let buffers = CallBuffers::new(&mut comm, Kind::Ordinary, longest)?;
    let mut timer = Timer { comm, buffers, own, smaller: HashMap::new() };
    for cell in &options.cells {
        timer.measure(&options, *cell)?;
    }
    Ok(timer.comm.leave()?)
}

impl Options {
    fn read(args: &[String]) -> anyhow::Result<Self> {
        let [seconds, rounds, cells @ ..] = args else { bail!(USAGE) };
        Ok(Self {
            seconds: seconds.parse().context(USAGE)?,
            rounds: rounds.parse::<usize>().context(USAGE)?.max(1),
            cells: cells.iter().map(|text| Cell::read(text)).collect::<anyhow::Result<_>>()?,
        })
    }
}

impl Cell {
    fn read(text: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split(':').collect();
        let [collective, data_type, bytes] = words[..] else {
            bail!("{text}: a cell is COLLECTIVE:TYPE:BYTES")
        };
        Ok(Self {
            collective: collective.parse().with_context(|| text.to_owned())?,
            data_type: data_type.parse().with_context(|| text.to_owned())?,
            bytes: bytes.parse().with_context(|| text.to_owned())?,
        })
    }

    /// Returns the call; a block has at least one element.
    fn call(&self, comm: &Communicator) -> Call {
        let has_blocks = self.collective.has_blocks();
        let elements = self.bytes / self.data_type.bytes();
        Call {
            collective: self.collective,
            count: (if has_blocks { elements / comm.size() } else { elements }).max(1),
            data_type: self.data_type,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: comm.wire(),
        }
    }
}

impl Timer {
    /// Times all candidates for a cell, and prints their times on rank 0. Every time is that of the
    /// slowest rank, so all ranks make the same decisions.
    fn measure(&mut self, options: &Options, cell: Cell) -> anyhow::Result<()> {
        let call = cell.call(&self.comm);
        self.comm.set_algorithms(self.own.clone());
        let chosen = self.comm.algorithm_for(&call);
        let (mut candidates, mut left_out) = (self.candidates(&cell, &call, chosen)?, Vec::new());
        for candidate in &mut candidates {
            self.try_out(&call, candidate)?;
        }
        let wrong: u64 = candidates.iter().map(|it| it.wrong).sum();
        let trials: Vec<_> = candidates.iter().map(|it| (it.name, it.trial)).collect();
        let shortest = trials.iter().map(|(_, trial)| *trial).fold(f64::INFINITY, f64::min);
        candidates.retain(|it| {
            let is_kept =
                [CHOICE, chosen].contains(&it.name) || it.trial <= shortest * TRIAL_RATIO_MAX;
            if !is_kept {
                left_out.push(it.name);
            }
            is_kept
        });
        let is_long = shortest >= LONG;
        let all: f64 = candidates.iter().map(|it| it.trial).sum();
        let affordable = (options.seconds / all).min(options.rounds as f64) as usize;
        // The trials of long calls are the first round.
        let rounds = if is_long { affordable.min(options.rounds - 1) } else { affordable.max(1) };
        let bearable = options.seconds / (all * rounds.max(1) as f64);
        let calls = if is_long { 1 } else { bearable.clamp(1.0, CALLS_MAX) as usize };
        for candidate in &mut candidates {
            candidate.times.extend(is_long.then_some(candidate.trial));
        }
        for round in 0..rounds {
            let middle = round % candidates.len();
            let (later, first) = candidates.split_at_mut(middle);
            for candidate in first.iter_mut().chain(later) {
                self.comm.set_algorithms(candidate.allowed.clone());
                if !is_long {
                    // These calls compile the programs, and fill queues of the network.
                    self.perform(&call, calls.min(self.roots(&call)))?;
                }
                candidate.times.push(self.time_batch(&call, calls)?);
            }
        }
        let mut times = trials.clone();
        for (name, time) in &mut times {
            let timed = candidates.iter().find(|it| it.name == *name);
            *time = timed.map_or(*time, |it| median(&it.times));
        }
        self.smaller.insert((cell.collective, cell.data_type), (cell.bytes, times));
        if self.comm.rank() == Rank(0) {
            let micros = |seconds: &f64| seconds * 1e6;
            let times = candidates.iter();
            let times = times.map(|it| (it.name, it.times.iter().map(micros).collect::<Vec<_>>()));
            let by_name = trials.iter().map(|(name, seconds)| (*name, micros(seconds)));
            let line = json!({
                "collective": cell.collective.name(),
                "type": cell.data_type.name(),
                "bytes": cell.bytes,
                "used": buffer_bytes(&call, self.comm.size()),
                "chosen": chosen,
                "calls": calls,
                "wrong": wrong,
                "times": times.collect::<HashMap<_, _>>(),
                "trials": by_name.collect::<HashMap<_, _>>(),
                "left_out": left_out,
            });
            Stream::Out.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Returns ringfold's choice, and all algorithms that may be the fastest.
    fn candidates(&self, cell: &Cell, call: &Call, chosen: &str) -> anyhow::Result<Vec<Candidate>> {
        let candidate = |name, allowed| Candidate {
            name,
            allowed,
            trial: f64::INFINITY,
            times: Vec::new(),
            wrong: 0,
        };
        let mut candidates = vec![candidate(CHOICE, self.own.clone())];
        let smaller = self.smaller.get(&(cell.collective, cell.data_type));
        for name in self.comm.possible_algorithms(call) {
            let is_slow = smaller.is_some_and(|smaller| is_hopeless(name, cell.bytes, smaller));
            if name == chosen || !is_slow {
                let only = format!("{}:{name}", cell.collective);
                candidates.push(candidate(name, only.parse().context(only)?));
            }
        }
        Ok(candidates)
    }

    /// Checks one call of a candidate, and sets its trial.
    fn try_out(&mut self, call: &Call, candidate: &mut Candidate) -> Result<(), Error> {
        self.comm.set_algorithms(candidate.allowed.clone());
        let in_place = in_place(call);
        let oracle = self.buffers.fill(&self.comm, call, in_place, 0);
        let first = self.time_batch(call, 1)?;
        let test = (Test::Collective(call.collective), call);
        let mut wrong = [self.buffers.count_wrong(&self.comm, test, in_place, &oracle) as u64];
        self.comm.all_reduce(&mut wrong, ReduceOp::Sum)?;
        candidate.wrong = wrong[0];
        candidate.trial = first;
        if first >= LONG {
            return Ok(());
        }
        // The first call has also compiled its program and opened connections.
        let calls = (TRIAL_SECONDS / first).clamp(1.0, TRIAL_CALLS_MAX) as usize;
        for _ in 0..2 {
            candidate.trial = candidate.trial.min(self.time_batch(call, calls)?);
        }
        Ok(())
    }

    /// Returns the seconds of one of `calls` calls, on the slowest rank.
    fn time_batch(&mut self, call: &Call, calls: usize) -> Result<f64, Error> {
        self.comm.barrier()?;
        let start = Instant::now();
        self.perform(call, calls)?;
        let mut slowest = [start.elapsed().as_secs_f64()];
        self.comm.all_reduce(&mut slowest, ReduceOp::Max)?;
        Ok(slowest[0] / calls as f64)
    }

    /// Makes `calls` calls. Each call with a root waits for the whole call before it, as
    /// `root_after` describes, and each scan as `hold_back` does.
    fn perform(&mut self, call: &Call, calls: usize) -> Result<(), Error> {
        if call.collective == Collective::Barrier {
            return (0..calls).try_for_each(|_| self.comm.barrier());
        }
        let (in_place, size) = (in_place(call), self.comm.size());
        let (mut call, algorithm) = (*call, self.comm.algorithm_for(call));
        for _ in 0..calls {
            let test = (Test::Collective(call.collective), &call);
            self.buffers.perform(&mut self.comm, test, in_place)?;
            self.hold_back(call.collective)?;
            call.root = root_after(&call, algorithm, size);
        }
        Ok(())
    }

    /// Holds back the first rank of a scan until the last one has its result and sends a byte.
    /// Otherwise a chain would be as fast as a rank passes on one call after the other.
    fn hold_back(&mut self, collective: Collective) -> Result<(), Error> {
        let last = self.comm.size() - 1;
        if last == 0 || !matches!(collective, Collective::Scan | Collective::Exscan) {
            return Ok(());
        }
        match self.comm.rank().index() {
            0 => self.comm.recv(&mut [0_u8], Rank::at(last), 0).map(drop),
            rank if rank == last => self.comm.send(&[0_u8], Rank(0), 0),
            _ => Ok(()),
        }
    }

    /// The number of roots among the calls of a batch.
    fn roots(&self, call: &Call) -> usize {
        let next = root_after(call, self.comm.algorithm_for(call), self.comm.size());
        if next == call.root { 1 } else { self.comm.size() }
    }
}

/// The root of the call after `call`. With one root for all calls, ranks would run ahead: a chain
/// of ranks passes on several calls at a time, and a root sends the next call while others still
/// receive. So the next root of a broadcast or scatter is the rank that chains and trees reach
/// last. The next root of a reduce or gather is the one whose call begins at this root: a chain
/// begins at the rank after its root, and the longest path of a tree at the rank before. In the
/// others a result needs every rank's input.
fn root_after(call: &Call, algorithm: &str, size: usize) -> Rank {
    let distance = match (call.collective, algorithm) {
        (Collective::Broadcast | Collective::Scatter, _) | (Collective::Reduce, "ring") => size - 1,
        (Collective::Reduce | Collective::Gather, _) => 1,
        _ => 0,
    };
    Rank::at((call.root.index() + distance) % size)
}

/// Whether the call has one buffer only.
fn in_place(call: &Call) -> bool {
    matches!(call.collective, Collective::Broadcast | Collective::Barrier)
}

/// Whether calls are long, and this candidate was far from the fastest at the smaller size.
fn is_hopeless(name: &str, bytes: usize, (smaller, times): &Smaller) -> bool {
    let shortest = times.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let is_long = shortest * (bytes as f64 / *smaller as f64) >= LONG;
    let was_slow = |(of, time): &(&str, f64)| *of == name && *time > shortest * SMALLER_RATIO_MAX;
    // One without a time was hopeless already.
    let is_known = times.iter().any(|(of, _)| *of == name);
    *smaller < bytes && is_long && (!is_known || times.iter().any(was_slow))
}

/// Returns the median of at least one time.
fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
