//! Whether ranks had better read each other's memory (cross-memory attach) is found out on the
//! spot: when a call of a collective and a length that was not seen before could go that way, it is
//! made a few times by either algorithm, on the buffers that it came with, and the ranks agree on
//! what the slowest of them saw. Only calls that can be repeated are tried so: what they write is
//! not what they read.

use std::time::{Duration, Instant};

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{buffer_bytes, may_be_attached};
use ringfold_types::{Call, Collective};

use crate::communicator::Communicator;
use crate::engine::Trouble;
use crate::memory::User;
use crate::plans::{Entry, mix};

/// Bytes of a batch of calls, and how many it has.
const BATCH_BYTES: usize = 1 << 20;
const CALLS: std::ops::RangeInclusive<usize> = 1..=8;

/// How often each algorithm has its turn, and how many batches a turn has that are not counted and
/// that are. Long calls find in the caches what the other algorithm left there for some time.
const TURNS: [usize; 3] = [3, 1, 1];
const TURNS_OF_LONG: [usize; 3] = [1, 4, 3];

/// In hundredths of what the other takes, what the newcomer must take less than; and the same where
/// ranks share CPUs, whose times differ more from turn to turn.
const HUNDREDTHS: u64 = 95;
const HUNDREDTHS_OF_CROWD: u64 = 85;

/// Calls that are alike in what is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    collective: Collective,
    /// The power of two that the bytes of the larger buffer reach.
    scale: u32,
}

impl Class {
    /// The class of `call`, if attached algorithms are tried for it.
    pub(crate) fn of(call: &Call, ranks: usize) -> Option<Self> {
        let scale = buffer_bytes(call, ranks).max(1).ilog2();
        may_be_attached(call, ranks).then_some(Self { collective: call.collective, scale })
    }
}

impl Communicator {
    /// Tries `call`, in which all ranks are with `tag`, by the algorithm that was chosen for it and
    /// by its `rival`, and settles by which of them such calls are performed from now on. It is
    /// performed several times by that, or not at all. Blocks. Returns what tells what was settled
    /// from anything else.
    #[cold]
    pub(crate) fn hold_contest(
        &mut self,
        tag: u32,
        call: &Call,
        rival: &'static Algorithm,
        mut user: User<'_>,
    ) -> Result<u32, Trouble> {
        let (rank, class) = (self.rank, Class::of(call, self.size()));
        let Some(class) = class else { return Ok(0) };
        // This exchange finds out a rank that is in another call. All ranks have come then, so that
        // each can try to read the others' memory.
        self.do_all_say_yes(tag, true)?;
        let takes_offers = self.engine.router_mut().takes_offers();
        if !self.do_all_say_yes(tag, takes_offers)? {
            self.plans.end_contests();
            return Ok(0);
        }
        let entries = self.plans.contestants(call, rival, &self.layout, rank);
        let bytes = buffer_bytes(call, self.size());
        let calls = (BATCH_BYTES / bytes).clamp(*CALLS.start(), *CALLS.end());
        let [turns, uncounted, counted] = if calls > 1 { TURNS } else { TURNS_OF_LONG };
        let mut best = [Duration::MAX; 2];
        for _ in 0..turns {
            for (entry, best) in entries.iter().zip(&mut best) {
                for batch in 0..uncounted + counted {
                    let time = self.time_batch(entry, tag, &mut user, calls)?;
                    *best = if batch < uncounted { *best } else { time.min(*best) };
                }
            }
        }
        let slowest = self.slowest(tag, best)?;
        let [old, new] = slowest.map(|nanos| nanos / calls as u64);
        let is_dense = self.layout.crowd().is_dense();
        let hundredths = if is_dense { HUNDREDTHS_OF_CROWD } else { HUNDREDTHS };
        let wins = new.saturating_mul(100) < old.saturating_mul(hundredths);
        let [winner, loser] = if wins { [1, 0] } else { [0, 1] };
        tracing::info!(
            "rank {rank}: {} of {bytes} bytes and the like by {} ({} ns), not {} ({} ns)",
            call.collective,
            entries[winner].schedule.algorithm(),
            [old, new][winner],
            entries[loser].schedule.algorithm(),
            [old, new][loser],
        );
        self.plans.settle(class, wins);
        Ok(verdict(slowest))
    }

    /// Performs a call so many times. All begin together, and end when the last is done.
    fn time_batch(
        &mut self,
        entry: &Entry,
        tag: u32,
        user: &mut User<'_>,
        calls: usize,
    ) -> Result<Duration, Trouble> {
        self.do_all_say_yes(tag, true)?;
        let begin = Instant::now();
        for _ in 0..calls {
            self.run_entry(entry, tag, user.again())?;
        }
        self.do_all_say_yes(tag, true)?;
        Ok(begin.elapsed())
    }

    /// The longest of all ranks' times, in nanoseconds.
    fn slowest(&mut self, tag: u32, own: [Duration; 2]) -> Result<[u64; 2], Trouble> {
        let nanos = own.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Ok(longest(&self.gather(tag, nanos.map(u64::to_le_bytes).as_flattened())?))
    }
}

/// Tells ranks that were told other times from each other.
const fn verdict(slowest: [u64; 2]) -> u32 {
    (mix(mix(slowest[0]) ^ slowest[1]) >> 32) as u32
}

/// The longest of both times that each rank said.
fn longest(said: &[u8]) -> [u64; 2] {
    let (words, _) = said.as_chunks::<8>();
    let of = |which| words.iter().skip(which).step_by(2).map(|word| u64::from_le_bytes(*word));
    [0, 1].map(|which| of(which).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use ringfold_topology::Layout;
    use ringfold_types::{DataType, Rank, ReduceOp};

    use super::*;
    use crate::config::Config;
    use crate::plans::Plans;

    fn call(collective: Collective, count: usize) -> Call {
        Call { collective, count, data_type: DataType::U8, op: ReduceOp::Sum, root: Rank(0) }
    }

    #[test]
    fn long_calls_that_can_be_repeated_are_tried_by_powers_of_two() {
        let class = |collective, count| Class::of(&call(collective, count), 2);
        for collective in Collective::ALL {
            let is_repeatable = matches!(collective, Collective::AllGather | Collective::Broadcast);
            for count in [0, 1, 32_767, 32_768, 1 << 20, 1 << 24] {
                let is_tried = is_repeatable && count >= 32_768;
                assert_eq!(class(collective, count).is_some(), is_tried, "{collective} {count}");
            }
        }
        let (gather, broadcast) = (Collective::AllGather, Collective::Broadcast);
        assert_eq!(class(gather, (1 << 24) + 1), None, "all buffers together");
        assert_eq!(class(broadcast, (32 << 20) + 1), None);
        assert_eq!(Class::of(&call(broadcast, 1 << 20), 1), None, "nobody to broadcast to");
        assert_eq!(class(gather, 40_000), class(gather, 65_000));
        assert_ne!(class(gather, 65_000), class(gather, 66_000));
        assert_ne!(class(gather, 40_000), class(broadcast, 80_000));
    }

    #[test]
    fn the_slowest_of_all_ranks_counts() {
        let said = [[7, 300], [900, 1], [8, 301]].map(|both: [u64; 2]| both.map(u64::to_le_bytes));
        assert_eq!(longest(said.as_flattened().as_flattened()), [900, 301]);
    }

    #[test]
    fn other_times_are_another_verdict() {
        let times = [[10, 1000], [1000, 10], [10, 1001], [11, 1000]];
        for (at, one) in times.into_iter().enumerate() {
            assert_ne!(verdict(one), 0, "which is no contest's");
            assert!(times[at + 1..].iter().all(|other| verdict(*other) != verdict(one)), "{one:?}");
        }
    }

    /// What is to be tried for `call`, and what it is performed by meanwhile.
    fn planned(plans: &mut Plans, call: &Call) -> (Option<&'static str>, &'static str) {
        let layout = Layout::one_host(2).sharing_memory(true);
        let entry = plans.entry(call, &layout, Rank(0)).unwrap();
        (entry.rival.map(|rival| rival.name), entry.schedule.algorithm())
    }

    #[test]
    fn what_was_settled_stays() {
        let (short, long) = (call(Collective::AllGather, 99), call(Collective::AllGather, 99_999));
        let mut plans = Plans::new(&Config::default());
        assert_eq!(planned(&mut plans, &long), (None, "staged"), "nothing is tried yet");
        plans.forget();
        plans.hold_contests();
        assert_eq!(planned(&mut plans, &short).0, None);
        assert_eq!(planned(&mut plans, &long), (Some("attached"), "staged"));
        let class = Class::of(&long, 2).unwrap();
        plans.settle(class, true);
        assert_eq!(planned(&mut plans, &long), (None, "attached"));
        let longer = Call { count: 2 * long.count, ..long };
        assert_eq!(planned(&mut plans, &longer), (Some("attached"), "staged"), "another class");
        plans.settle(class, false);
        assert_eq!(planned(&mut plans, &long), (None, "staged"));
        plans.end_contests();
        assert_eq!(planned(&mut plans, &longer), (None, "staged"));
        for (algorithms, name) in [("staged", "staged"), ("attached", "attached"), ("ring", "ring")]
        {
            let mut plans = Plans::new(&Config::default());
            plans.constrain(algorithms.parse().unwrap());
            plans.hold_contests();
            assert_eq!(planned(&mut plans, &long), (None, name), "there is no choice");
        }
    }
}
