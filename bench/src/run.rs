//! Times and checks one call.

use std::time::{Duration, Instant};

use ringfold::{Call, Collective, Communicator, Error, ProfiledCalls, Rank, ReduceOp};
use rustix::time::{ClockId, clock_gettime};

use crate::args::Args;
use crate::buffers::{CallBuffers, Kind, buffer_bytes};
use crate::oracle::Oracle;
use crate::stats::{Spread, percentile};
use crate::test::Test;
use crate::timestamp::timestamp;

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) test: Test,
    pub(crate) call: Call,
    pub(crate) bytes: usize,
    pub(crate) algorithm: &'static str,
    pub(crate) out_of_place: Half,
    pub(crate) in_place: Half,
    pub(crate) overlap: Option<Overlap>,
    pub(crate) parts: Option<Parts>,
    /// The time of day after the last call.
    pub(crate) end: String,
}

/// The results of one half of a row: out of place or in place.
#[derive(Clone, Debug, Default)]
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
    /// The times of single iterations.
    pub(crate) iterations: Option<Iterations>,
}

/// Started calls out of place, without and with a computation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    /// Microseconds per call that is awaited at once.
    pub(crate) alone_us: f64,
    /// Microseconds per call with a computation that takes as long as the rank's calls alone.
    pub(crate) computing_us: f64,
}

impl Overlap {
    /// The part of the call that the computation hides, in percent, as in the OSU benchmarks.
    pub(crate) fn percent(self) -> f64 {
        let shown = (self.computing_us - self.alone_us) / self.alone_us;
        (100.0 * (1.0 - shown)).clamp(0.0, 100.0)
    }
}

/// The parts of the time of calls out of place, in microseconds per call.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Waiting, moving and combining of each rank.
    pub(crate) of_ranks: Vec<[f64; 3]>,
    /// The time by the prices; `None` if they do not tell it.
    pub(crate) expected: Option<f64>,
}

impl Parts {
    /// The means of the ranks.
    pub(crate) fn means(&self) -> [f64; 3] {
        let mean = |part: usize| self.of_ranks.iter().map(|it| it[part]).sum::<f64>();
        [0, 1, 2].map(|part| mean(part) / self.of_ranks.len() as f64)
    }

    /// The shortest waiting of a rank, and that rank.
    pub(crate) fn least_waiting(&self) -> (f64, usize) {
        let of_ranks = self.of_ranks.iter().enumerate().map(|(rank, it)| (it[0], rank));
        of_ranks.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default()
    }
}

/// The microseconds per call of single iterations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Iterations {
    /// Those of the slowest rank in each iteration.
    pub(crate) slowest: Vec<f64>,
    /// Those of each rank, one rank after the other. Only the first rank has them, for a file.
    pub(crate) of_ranks: Vec<f64>,
    /// The spread of `slowest` without the iterations to leave out.
    pub(crate) spread: Spread,
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
        let (calls, unalign) = (args.agg_iters, args.unalign);
        let buffers = CallBuffers::for_groups(comm, kind, max_bytes, calls, unalign)?;
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
            _ if self.args.agg_iters > 1 => "group",
            _ if !matches!(self.test, Test::Collective(_)) => "message",
            None => self.comm.algorithm_for(call),
            Some(window) => self.comm.algorithm_in(window, call),
        };
        let overlap = if self.args.overlap { Some(self.overlap(call)?) } else { None };
        let parts = if self.args.profile { Some(self.profile(call)?) } else { None };
        let (test, call, end) = (self.test, *call, timestamp());
        Ok(Row { test, call, bytes, algorithm, out_of_place, in_place, overlap, parts, end })
    }

    fn half(&mut self, call: &Call, bytes: usize, in_place: bool) -> Result<Half, Error> {
        self.fill(call, in_place);
        self.perform(call, in_place)?;
        let (seconds, iterations) = self.time(call, in_place)?;
        let algbw = if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 };
        let busbw = algbw * bus_factor(self.test, self.comm.size());
        let latency_us = if self.args.latency { Some(self.latency(call, in_place)?) } else { None };
        let wrong = self.check(call, in_place)?;
        Ok(Half { time_us: seconds * 1e6, algbw, busbw, wrong, latency_us, iterations })
    }

    /// Returns the seconds per call of iterations back to back, and the times of single ones.
    fn time(&mut self, call: &Call, in_place: bool) -> Result<(f64, Option<Iterations>), Error> {
        let Args { iters, agg_iters, blocking, per_iter_timing, report_cputime, .. } = *self.args;
        let clock = if report_cputime == 1 { cpu_seconds } else { wall_seconds };
        let is_each_timed = per_iter_timing == 1;
        let mut times = vec![0.0; if is_each_timed { iters } else { 0 }];
        self.comm.barrier()?;
        let mut spent = 0.0;
        let start = clock();
        for iteration in 0..iters {
            let begin = if blocking == 3 { clock() } else { 0.0 };
            let wall = if is_each_timed { wall_seconds() } else { 0.0 };
            self.perform_iteration(call, in_place)?;
            if blocking == 1 {
                self.comm.barrier()?;
            }
            if let Some(time) = times.get_mut(iteration) {
                *time = wall_seconds() - wall;
            }
            if blocking == 3 {
                spent += clock() - begin;
                self.comm.barrier()?;
            }
        }
        if blocking != 3 {
            spent = clock() - start;
        }
        let seconds = self.over_ranks(spent / (iters * agg_iters) as f64)?;
        times.iter_mut().for_each(|time| *time *= 1e6 / agg_iters as f64);
        Ok((seconds, if is_each_timed { Some(self.iterations(times)?) } else { None }))
    }

    /// Returns the times of all ranks from those of this one.
    fn iterations(&mut self, mut times: Vec<f64>) -> Result<Iterations, Error> {
        let is_first = self.comm.rank() == Rank(0);
        let kept = if is_first { times.len() * self.comm.size() } else { 0 };
        let mut of_ranks = vec![0.0; kept];
        self.comm.gather_into(&times, &mut of_ranks, Rank(0))?;
        self.comm.all_reduce(&mut times, ReduceOp::Max)?;
        let spread = Spread::of(&times[self.args.per_iter_skip..]);
        Ok(Iterations { slowest: times, of_ranks, spread })
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

    /// Profiles iterations out of place back to back.
    fn profile(&mut self, call: &Call) -> Result<Parts, Error> {
        self.comm.barrier()?;
        self.comm.begin_profile()?;
        (0..self.args.iters).try_for_each(|_| self.perform_iteration(call, false))?;
        let kinds = self.comm.end_profile()?.kinds;
        let calls = self.args.iters * self.args.agg_iters;
        let per_call = |time: Duration| time.as_secs_f64() * 1e6 / calls as f64;
        let sum = |part: fn(&ProfiledCalls) -> Duration| per_call(kinds.iter().map(part).sum());
        let own = [sum(|it| it.waiting), sum(ProfiledCalls::moving), sum(|it| it.combining)];
        let mut of_ranks = vec![own; self.comm.size()];
        self.comm.all_gather_into(&[own], &mut of_ranks)?;
        let expected = kinds.iter().map(|it| it.expected).sum::<Option<Duration>>().map(per_call);
        Ok(Parts { of_ranks, expected })
    }

    /// Times started calls out of place, alone and with a computation.
    fn overlap(&mut self, call: &Call) -> Result<Overlap, Error> {
        let (rank, size, bytes) = (self.comm.rank(), self.comm.size(), call.data_type.bytes());
        let [input, output] = [call.input_of(rank, size), call.output_of(rank, size)];
        let mut buffers = (vec![0; input * bytes], vec![0; output * bytes]);
        self.started(call, &mut buffers, 0.0)?;
        let alone_us = self.started(call, &mut buffers, 0.0)?;
        let computing_us = self.started(call, &mut buffers, alone_us)?;
        let [alone_us, computing_us] = [self.over_ranks(alone_us)?, self.over_ranks(computing_us)?];
        Ok(Overlap { alone_us, computing_us })
    }

    /// Returns this rank's microseconds per started call, which all ranks begin together, with a
    /// computation of that many microseconds before the wait.
    fn started(
        &mut self,
        call: &Call,
        buffers: &mut (Vec<u8>, Vec<u8>),
        computing_us: f64,
    ) -> Result<f64, Error> {
        let (call, iters) = (self.own(call), self.args.iters);
        let mut spent = 0.0;
        for _ in 0..iters {
            self.comm.barrier()?;
            let begin = wall_seconds();
            let both = std::mem::take(buffers);
            let request = self.comm.start(&call, both, |(input, output)| (Some(input), output))?;
            let end = wall_seconds() + computing_us / 1e6;
            while computing_us > 0.0 && wall_seconds() < end {
                std::hint::spin_loop();
            }
            *buffers = request.wait()?;
            spent += wall_seconds() - begin;
        }
        Ok(spent / iters as f64 * 1e6)
    }

    /// Checks the requested number of iterations, up to the first wrong one. Returns its number of
    /// wrong elements on all ranks.
    fn check(&mut self, call: &Call, in_place: bool) -> Result<Option<u64>, Error> {
        if self.test == Test::SendRecv && in_place {
            // As in nccl-tests: this half is another run with two buffers.
            return Ok(None);
        }
        let mut total = None;
        for _ in 0..self.args.check {
            let oracle = self.fill(call, in_place);
            self.perform_iteration(call, in_place)?;
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
        self.buffers.perform(self.comm, (self.test, &self.own(call)), in_place)
    }

    /// Makes the calls of one iteration.
    fn perform_iteration(&mut self, call: &Call, in_place: bool) -> Result<(), Error> {
        match self.args.agg_iters {
            1 => self.perform(call, in_place),
            _ => {
                let call = (self.test, &self.own(call));
                self.buffers.perform_group(self.comm, call, in_place)
            }
        }
    }

    /// Returns the call with this rank's scale. Each rank has its own.
    fn own(&self, call: &Call) -> Call {
        Call { op: Oracle::new(*call, self.comm.size(), 0).op(self.comm.rank()), ..*call }
    }
}

/// Returns the bytes that the busiest link carries for each byte of the buffer (from nccl-tests'
/// performance notes).
fn bus_factor(test: Test, ranks: usize) -> f64 {
    match test {
        Test::Collective(collective) => collective.bus_factor(ranks),
        Test::SendRecv => 1.0,
        _ => Collective::AllToAll.bus_factor(ranks),
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

#[cfg(test)]
mod tests {
    use super::Overlap;

    #[test]
    fn a_computation_hides_a_part_of_a_call() {
        for (computing_us, percent) in [(90.0, 100.0), (110.0, 90.0), (200.0, 0.0), (250.0, 0.0)] {
            let found = Overlap { alone_us: 100.0, computing_us }.percent();
            assert!((found - percent).abs() < 1e-9, "{computing_us}: {found}");
        }
    }
}
