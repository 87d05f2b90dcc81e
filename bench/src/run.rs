//! Times and checks one call.

use std::time::Instant;

use ringfold::{Call, Collective, Communicator, Error, Rank, ReduceOp};
use rustix::time::{ClockId, clock_gettime};

use crate::args::Args;
use crate::buffers::{CallBuffers, Kind, buffer_bytes};
use crate::oracle::Oracle;
use crate::stats::percentile;
use crate::test::Test;

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) test: Test,
    pub(crate) call: Call,
    pub(crate) bytes: usize,
    pub(crate) algorithm: &'static str,
    pub(crate) out_of_place: Half,
    pub(crate) in_place: Half,
}

/// The results of one half of a row: out of place or in place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Half {
    /// Microseconds per call.
    pub(crate) time_us: f64,
    /// Algorithm bandwidth in gigabytes (1e9) per second.
    pub(crate) algbw: f64,
    /// Bus bandwidth in gigabytes (1e9) per second.
    pub(crate) busbw: f64,
    /// Wrong elements on all ranks; `None` without a check.
    pub(crate) wrong: Option<u64>,
    /// 50th and 99th percentile of the microseconds of single calls.
    pub(crate) latency_us: Option<(f64, f64)>,
}

/// Times and checks calls of one communicator.
pub(crate) struct Runner<'a> {
    pub(crate) comm: &'a mut Communicator,
    args: &'a Args,
    test: Test,
    buffers: CallBuffers,
    seed: u64,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        comm: &'a mut Communicator,
        args: &'a Args,
        test: Test,
        max_bytes: usize,
    ) -> Result<Self, Error> {
        let kind = match args.local_register {
            0 => Kind::Ordinary,
            1 => Kind::Registered,
            _ => Kind::Windows,
        };
        let buffers = CallBuffers::new(comm, kind, max_bytes)?;
        Ok(Self { comm, args, test, buffers, seed: 0 })
    }

    /// Makes untimed calls, to connect the ranks and to touch memory.
    pub(crate) fn warm_up(&mut self, call: &Call) -> Result<(), Error> {
        (0..self.args.warmup_iters).try_for_each(|_| self.perform(call, false))
    }

    /// Times and checks `call`, out of place and in place.
    pub(crate) fn row(&mut self, call: &Call) -> Result<Row, Error> {
        let bytes = buffer_bytes(call, self.comm.size());
        let out_of_place = self.half(call, bytes, false)?;
        let in_place = self.half(call, bytes, true)?;
        let algorithm = match self.buffers.window() {
            _ if !matches!(self.test, Test::Collective(_)) => "message",
            None => self.comm.algorithm_for(call),
            Some(window) => self.comm.algorithm_in(window, call),
        };
        Ok(Row { test: self.test, call: *call, bytes, algorithm, out_of_place, in_place })
    }

    fn half(&mut self, call: &Call, bytes: usize, in_place: bool) -> Result<Half, Error> {
        self.fill(call, in_place);
        self.perform(call, in_place)?;
        let seconds = self.time(call, in_place)?;
        let algbw = if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 };
        let busbw = algbw * bus_factor(self.test, self.comm.size());
        let latency_us = if self.args.latency { Some(self.latency(call, in_place)?) } else { None };
        let wrong = self.check(call, in_place)?;
        Ok(Half { time_us: seconds * 1e6, algbw, busbw, wrong, latency_us })
    }

    /// Returns the seconds per call of calls back to back.
    fn time(&mut self, call: &Call, in_place: bool) -> Result<f64, Error> {
        let clock = if self.args.report_cputime == 1 { cpu_seconds } else { wall_seconds };
        self.comm.barrier()?;
        let mut spent = 0.0;
        let start = clock();
        for _ in 0..self.args.iters {
            let begin = if self.args.blocking == 3 { clock() } else { 0.0 };
            self.perform(call, in_place)?;
            if self.args.blocking == 3 {
                spent += clock() - begin;
            }
            if matches!(self.args.blocking, 1 | 3) {
                self.comm.barrier()?;
            }
        }
        if self.args.blocking != 3 {
            spent = clock() - start;
        }
        self.over_ranks(spent / self.args.iters.max(1) as f64)
    }

    /// Combines the ranks' times as `-a` says.
    fn over_ranks(&mut self, mine: f64) -> Result<f64, Error> {
        let mut value = [mine];
        match self.args.average {
            0 => self.comm.broadcast(&mut value, Rank(0))?,
            1 => self.comm.all_reduce(&mut value, ReduceOp::Avg)?,
            2 => self.comm.all_reduce(&mut value, ReduceOp::Min)?,
            _ => self.comm.all_reduce(&mut value, ReduceOp::Max)?,
        }
        Ok(value[0])
    }

    /// Returns the 50th and 99th percentile of single calls that all ranks start together, in
    /// microseconds of the slowest rank.
    fn latency(&mut self, call: &Call, in_place: bool) -> Result<(f64, f64), Error> {
        let mut times = vec![0.0; self.args.iters];
        for time in &mut times {
            self.comm.barrier()?;
            let start = Instant::now();
            self.perform(call, in_place)?;
            *time = start.elapsed().as_secs_f64() * 1e6;
        }
        self.comm.all_reduce(&mut times, ReduceOp::Max)?;
        Ok((percentile(&mut times, 0.5), percentile(&mut times, 0.99)))
    }

    /// Checks the requested number of calls, up to the first wrong one. Returns its number of wrong
    /// elements on all ranks.
    fn check(&mut self, call: &Call, in_place: bool) -> Result<Option<u64>, Error> {
        if self.test == Test::SendRecv && in_place {
            // As in nccl-tests: this half is another run with two buffers.
            return Ok(None);
        }
        let mut total = None;
        for _ in 0..self.args.check {
            let oracle = self.fill(call, in_place);
            self.perform(call, in_place)?;
            let own = self.buffers.count_wrong(self.comm, (self.test, call), in_place, &oracle);
            let mut wrong = [own as u64];
            self.comm.all_reduce(&mut wrong, ReduceOp::Sum)?;
            total = Some(wrong[0]);
            if wrong[0] > 0 {
                break;
            }
        }
        Ok(total)
    }

    /// Writes new inputs, and garbage to the output.
    fn fill(&mut self, call: &Call, in_place: bool) -> Oracle {
        self.seed += 1;
        self.buffers.fill(self.comm, call, in_place, self.seed)
    }

    fn perform(&mut self, call: &Call, in_place: bool) -> Result<(), Error> {
        // Each rank has its own scale.
        let op = Oracle::new(*call, self.comm.size(), 0).op(self.comm.rank());
        self.buffers.perform(self.comm, (self.test, &Call { op, ..*call }), in_place)
    }
}

/// Returns the bytes that the busiest link carries for each byte of the buffer (from nccl-tests'
/// performance notes).
fn bus_factor(test: Test, ranks: usize) -> f64 {
    let n = ranks as f64;
    let collective = match test {
        Test::Collective(collective) => collective,
        Test::SendRecv => return 1.0,
        _ => return (n - 1.0) / n,
    };
    match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        collective if collective.has_blocks() => (n - 1.0) / n,
        _ => 1.0,
    }
}

fn wall_seconds() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
