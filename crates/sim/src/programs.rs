//! The programs of all ranks. Where they have too many operations, longer chunks and merged rounds
//! make them coarser.

use std::collections::HashSet;
use std::error;
use std::fmt;
use std::sync::Arc;
use std::thread;

use ringfold_collectives::{
    Algorithm, Builder, Program, Schedule, ScheduleParams, Source, Step, Target, lower,
};
use ringfold_topology::{Aggregation, Layout};
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Rank, Slice, mix};

use crate::job::Job;

/// The most operations of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Operations of all ranks together. Programs that have no more are not changed.
    pub all: usize,
    /// Operations of a rank in programs that have more.
    pub of_rank: usize,
    /// Connections of all ranks beyond which these have as few operations as longer chunks allow.
    pub connections: usize,
}

impl Default for Limits {
    /// An operation takes about 100 bytes, and two of them may have a connection of their own,
    /// which takes some hundreds. The more connections there are, the more shares of links change
    /// with each message.
    fn default() -> Self {
        Self { all: 10_000_000, of_rank: 512, connections: 1_500_000 }
    }
}

/// The programs of all ranks, in rank order.
#[derive(Clone, Debug)]
pub struct Programs {
    pub(crate) of_ranks: Vec<Arc<Program>>,
    /// A chunk has this many times the elements of a chunk of the real call.
    pub chunks: usize,
    /// A round stands for this many rounds of the real call: a message has their bytes, and takes
    /// their latencies.
    pub rounds: usize,
}

/// The programs have this many operations, and cannot be made coarser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany(pub usize);

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ranks have about {} operations, which is too many to simulate", self.0)
    }
}

impl error::Error for TooMany {}

impl Programs {
    /// The programs of a call by an algorithm, whose pipelines pass on `chunk` elements at a time.
    ///
    /// If these have more operations than `limits.all`, the chunks grow until a rank has no more
    /// than `limits.of_rank`; with more than `limits.connections`, as long as that spares
    /// operations. If longer chunks do not help, rounds are merged. A round is a run of sends and
    /// the receives after it. Rounds can be merged if each message of a round is received in the
    /// same round of another rank, as in a ring.
    ///
    /// # Errors
    /// There are too many operations, even so.
    pub fn of(
        job: &Job,
        call: &Call,
        algorithm: &Algorithm,
        chunk: usize,
        limits: Limits,
    ) -> Result<Self, TooMany> {
        let size = job.layout.size();
        // Members that are alone on their hosts all hand over the same chunks.
        let are_alone = job.layout.hosts() == size && !call.collective.has_root();
        if algorithm.needs_provider() && job.layout.aggregation().is_some() && are_alone {
            let schedule = (algorithm.schedule)(&plan(call, Rank(0), chunk, &job.layout));
            if schedule.steps() > limits.all {
                return Err(TooMany(schedule.steps()));
            }
            let program = Arc::new(lower(&schedule, Target::default()));
            return Ok(Self { of_ranks: vec![program; size], chunks: 1, rounds: 1 });
        }
        // Members hand over longer chunks too.
        let coarse = |times: usize| {
            let of_longer = |it: &Aggregation| Aggregation {
                chunk_bytes: it.chunk_bytes.saturating_mul(times),
                ..it.clone()
            };
            job.layout.clone().with_aggregation(job.layout.aggregation().map(of_longer))
        };
        // Some ranks stand for the busiest ones.
        let some = [call.root, Rank::at(size / 2), Rank::at(size - 1)];
        let schedules = |times: usize| {
            let layout = coarse(times);
            some.map(|rank| (algorithm.schedule)(&plan(call, rank, times * chunk, &layout)))
        };
        let most = |times| schedules(times).iter().map(Schedule::steps).max().unwrap_or(0);
        let known = schedules(1);
        let [of_root, others @ ..] = known.each_ref().map(Schedule::steps);
        let all = others[0].max(others[1]).saturating_mul(size).saturating_add(of_root);
        let (mut chunks, mut rounds) = (1, 1);
        if all > limits.all {
            let receivers = known.iter().map(receivers).max().unwrap_or(0);
            let has_many = receivers.saturating_mul(size) > limits.connections;
            let wanted = if has_many { 0 } else { limits.of_rank };
            let mut busiest = most(1);
            while busiest > wanted {
                let longer = most(2 * chunks);
                if longer >= busiest {
                    break;
                }
                (chunks, busiest) = (2 * chunks, longer);
            }
            rounds = busiest.div_ceil(limits.of_rank);
        }
        let layout = coarse(chunks);
        job.progress.begin(size);
        let of_rank = |rank| {
            job.progress.add(1);
            let plan = plan(call, rank, chunks * chunk, &layout);
            let schedule = (algorithm.schedule)(&plan);
            if rounds == 1 {
                return Some((lower(&schedule, Target::default()), 0));
            }
            let (merged, unmatched) = Merge::of(&schedule, &plan, rounds)?;
            let is_short = merged.steps() <= 2 * limits.of_rank;
            is_short.then(|| (lower(&merged, Target::default()), unmatched))
        };
        let found = in_threads(size, of_rank).ok_or(TooMany(all))?;
        let unmatched = found.iter().fold(0_u64, |sum, (_, of_rank)| sum.wrapping_add(*of_rank));
        if unmatched != 0 {
            return Err(TooMany(all));
        }
        let of_ranks = found.into_iter().map(|(program, _)| Arc::new(program)).collect();
        Ok(Self { of_ranks, chunks, rounds })
    }
}

fn plan<'l>(call: &Call, rank: Rank, chunk: usize, layout: &'l Layout) -> ScheduleParams<'l> {
    ScheduleParams { call: *call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN }
}

/// The ranks to which one sends.
fn receivers(schedule: &Schedule) -> usize {
    let to = |step: &Step| if let Step::Send { to, .. } = step { Some(*to) } else { None };
    let steps = schedule.lanes().iter().flatten();
    steps.filter_map(to).collect::<HashSet<_>>().len()
}

/// What `make` makes for each rank, in the threads that this machine has. `None` if it makes
/// nothing for one of them.
fn in_threads<T: Send>(size: usize, make: impl Fn(Rank) -> Option<T> + Sync) -> Option<Vec<T>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = size.div_ceil(threads);
    thread::scope(|scope| {
        let make = &make;
        let parts = (0..size).step_by(each).map(|first| {
            let ranks = first..size.min(first + each);
            scope.spawn(move || ranks.map(|rank| make(Rank::at(rank))).collect::<Option<Vec<T>>>())
        });
        let parts: Vec<_> = parts.collect();
        let mut all = Vec::with_capacity(size);
        for part in parts {
            all.extend(part.join().ok()??);
        }
        Some(all)
    })
}

/// A schedule in which rounds are merged.
struct Merge<'s> {
    schedule: &'s Schedule,
    merged: Builder,
    /// The sum of a number for each message that is sent, less that for each that is received. Over
    /// all ranks it is 0 if each message is received in the round in which it is sent.
    unmatched: u64,
}

impl<'s> Merge<'s> {
    /// Merges `count` rounds at a time, where they are of one kind. `None` if the schedule has
    /// steps other than messages and memory of its own.
    fn of(
        schedule: &'s Schedule,
        plan: &ScheduleParams<'_>,
        count: usize,
    ) -> Option<(Schedule, u64)> {
        let lanes = schedule.lanes().len();
        let merged = Builder::new(plan, schedule.algorithm(), lanes);
        let mut merge = Self { schedule, merged, unmatched: 0 };
        for (lane, steps) in schedule.lanes().iter().enumerate() {
            merge.merged.lane(lane);
            let rounds = merge.rounds(steps);
            let mut rest = rounds.as_slice();
            let mut number = 0;
            while let [first, ..] = rest {
                let alike = |other: &&&[Step]| merge.is_alike(first, other);
                let alike = rest.iter().take(count).take_while(alike).count();
                merge.push(lane, number, &rest[..alike])?;
                (rest, number) = (&rest[alike..], number + 1);
            }
        }
        Some((merge.merged.build(), merge.unmatched))
    }

    /// Cuts the steps of a lane where a send follows a receive.
    fn rounds(&self, steps: &'s [Step]) -> Vec<&'s [Step]> {
        let receives = |step: &Step| match step {
            Step::Recv { .. } => true,
            Step::Reduce { sources, .. } => {
                let is_wire = |source: &Source| matches!(source, Source::Wire(..));
                self.schedule.sources(sources).iter().any(is_wire)
            }
            _ => false,
        };
        let is_whole =
            |before: &Step, step: &Step| !(receives(before) && matches!(step, Step::Send { .. }));
        steps.chunk_by(is_whole).collect()
    }

    /// Whether two rounds have the same steps, but for ranks, places and lengths.
    fn is_alike(&self, one: &[Step], other: &[Step]) -> bool {
        let alike = |(one, other): (&Step, &Step)| match (one, other) {
            (Step::Send { src: one, .. }, Step::Send { src: other, .. })
            | (Step::Recv { dst: one, .. }, Step::Recv { dst: other, .. }) => {
                one.buffer == other.buffer
            }
            (Step::Copy { .. }, Step::Copy { .. }) => true,
            (
                Step::Reduce { dst: one, sources: of_one },
                Step::Reduce { dst: other, sources: of_other },
            ) => {
                let sources = |of| self.schedule.sources(of).iter();
                let form = |source: &Source| match source {
                    Source::Wire(_, form) => Some(*form),
                    _ => None,
                };
                let are_alike = sources(of_one).map(form).eq(sources(of_other).map(form));
                one.buffer == other.buffer && are_alike
            }
            _ => false,
        };
        one.len() == other.len() && one.iter().zip(other).all(alike)
    }

    /// Adds rounds of one kind as one: one of them, with the elements of all. Its place among them
    /// is by a hash. Each second round, say, would go only to ranks whose numbers are odd.
    fn push(&mut self, lane: usize, number: usize, rounds: &[&[Step]]) -> Option<()> {
        let (me, schedule) = (self.schedule.rank(), self.schedule);
        let mut message = |from: Rank, to: Rank, len: usize| {
            let ranks = (from.index() as u64) << 32 | to.index() as u64;
            let place = (lane as u64) << 48 ^ (number as u64) << 24;
            let sum = mix(mix(mix(ranks) ^ place) ^ len as u64);
            let sum = if from == me { sum } else { sum.wrapping_neg() };
            self.unmatched = self.unmatched.wrapping_add(sum);
        };
        self.merged.part();
        let chosen = usize::try_from(mix(number as u64) % rounds.len() as u64).ok()?;
        for (at, step) in rounds[chosen].iter().enumerate() {
            let of_all = rounds.iter().map(|round| match round[at] {
                Step::Send { src, .. } => src.len,
                Step::Recv { dst, .. } | Step::Copy { dst, .. } | Step::Reduce { dst, .. } => {
                    dst.len
                }
                _ => 0,
            });
            let len = of_all.sum();
            match *step {
                Step::Send { to, src } => {
                    message(me, to, len);
                    self.merged.send(to, Slice { len, ..src });
                }
                Step::Recv { from, dst } => {
                    message(from, me, len);
                    self.merged.recv(from, Slice { len, ..dst });
                }
                Step::Copy { src, dst } => {
                    let [src, dst] = [src, dst].map(|slice| Slice { len, ..slice });
                    self.merged.copy(src, dst);
                }
                Step::Reduce { dst, ref sources } => {
                    let sources = schedule.sources(sources).iter().map(|source| match *source {
                        Source::Local(slice) => Source::Local(Slice { len, ..slice }),
                        other => other,
                    });
                    let sources: Vec<Source> = sources.collect();
                    for source in &sources {
                        if let Source::Wire(from, _) = *source {
                            message(from, me, len);
                        }
                    }
                    self.merged.reduce(Slice { len, ..dst }, &sources);
                }
                _ => return None,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::{Collective, DataType, ReduceOp, Wire};

    use super::*;
    use crate::{Routing, Shape, simulate};

    /// Chunks grow on where ranks have many connections, and the call takes about as long.
    #[test]
    fn many_connections_have_the_longest_chunks() {
        let fabric = "fat:72x1:400G:radix=16".parse::<Shape>().unwrap().fabric();
        let job = Job::of(&fabric, None, 1, true, |prices| prices).unwrap();
        let (collective, op, data_type) = (Collective::AllReduce, ReduceOp::Sum, DataType::F32);
        let (root, wire) = (Rank(0), Wire::default());
        let call = Call { collective, count: 1 << 20, data_type, op, root, wire };
        let known = Algorithm::of(collective).iter().find(|it| it.name == "hierarchical").unwrap();
        let of = |connections| {
            let limits = Limits { all: 0, of_rank: 100, connections };
            let programs = Programs::of(&job, &call, known, 1 << 12, limits).unwrap();
            let outcome = simulate(&job, &programs, Routing::default()).unwrap();
            let ops = programs.of_ranks[0].lanes()[0].len();
            (programs.chunks, programs.rounds, ops, outcome.time_ps as f64)
        };
        let receivers = receivers(&(known.schedule)(&plan(&call, Rank(0), 1 << 12, &job.layout)));
        let (few, many) = (of(72 * receivers), of(72 * receivers - 1));
        assert!(few.2 > 50 && many.0 > few.0 && many.2 < few.2, "{few:?} {many:?}");
        assert_eq!([few.1, many.1], [1, 1]);
        assert!((0.9..1.1).contains(&(many.3 / few.3)), "{few:?} {many:?}");
    }

    /// One program of a member stands for those of all.
    #[test]
    fn members_alone_on_their_hosts_do_the_same() {
        for (shape, data_type) in [
            ("switch:5x1:100G", DataType::F32),
            ("fat:12x1:100G:radix=4", DataType::Bf16),
            ("torus:3x3:100G", DataType::F32),
        ] {
            let fabric = shape.parse::<Shape>().unwrap().fabric();
            let job = Job::of(&fabric, None, 1, true, |prices| prices).unwrap();
            let job = job.with_aggregators().unwrap();
            let (collective, op) = (Collective::AllReduce, ReduceOp::Sum);
            let (count, root, wire) = (1 << 18, Rank(0), Wire::default());
            let call = Call { collective, count, data_type, op, root, wire };
            let known = Algorithm::of(collective).iter().find(|it| it.needs_provider()).unwrap();
            let one = Programs::of(&job, &call, known, 1 << 14, Limits::default()).unwrap();
            let own = |rank| {
                let schedule = (known.schedule)(&plan(&call, rank, 1 << 14, &job.layout));
                Arc::new(lower(&schedule, Target::default()))
            };
            let of_ranks = (0..job.layout.size()).map(|rank| own(Rank::at(rank))).collect();
            let each = Programs { of_ranks, ..one.clone() };
            let run = |programs| simulate(&job, programs, Routing::default()).unwrap();
            assert_eq!(run(&one), run(&each), "{shape}");
        }
    }
}
