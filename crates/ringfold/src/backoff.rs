//! Waiting: a rank spins while that pays, then yields its core, then parks.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ringfold_topology::Occupancy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The rounds that an idle rank spins and yields before it parks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitPolicy {
    /// Time to spin without leaving the core.
    spin: Duration,
    /// Rounds after the spin time in which other threads may run first.
    yields: u32,
    /// Rounds before the spin time in which other threads may run first. A step that peers complete
    /// as a whole usually ends within them.
    early_yields: u32,
    /// The longest time that `spin` may grow to.
    spin_max: Duration,
    /// Brief waits with parks since the last patient spin.
    brief_parks: u32,
}

/// The shortest spin time, after repeated spins in vain.
const SPIN_MIN: Duration = Duration::from_micros(1);

/// The time of a patient spin, which is longer than the wake-ups of both ranks of a pair. Ranks may
/// park only because each waits for the other's wake-up. A rank that spins for longer than the
/// peer's wake-up ends this for both. A shorter spin would never.
const PATIENT_SPIN: Duration = Duration::from_micros(200);

/// Waits of at most this length may be such a pair's.
const BRIEF_WAIT: Duration = Duration::from_micros(400);

/// Brief waits with parks after which one spin is patient. If the peer is always as late as that, a
/// rank spins for a ninth of its waits.
const BRIEF_PARKS: u32 = 8;

/// The state of a wait at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There was next to no wait, or the policy does not spin.
    AtOnce,
    /// The rank had not yielded its core in a wait of this length.
    Spinning(Duration),
    /// The rank had yielded its core.
    Yielding,
    /// The rank had parked in a wait of this length.
    Parked(Duration),
}

/// The next action of a rank that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Spin,
    Yield,
    Park,
}

/// Counts the fruitless rounds since the call last made progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
    since: Option<Instant>,
    yielded: u32,
    has_parked: bool,
    /// Yields instead of parks, for peers that read this rank's memory.
    reader_yields: u32,
    /// Polls in a row that found something.
    busy_polls: u32,
}

/// Yields before parking while a peer may still be reading our buffer. They last longer than one
/// copy of a peer plus the time to wake a thread.
const READER_YIELDS: u32 = 400;

/// Rounds, or parks that ended early, between two readings of the clock.
const CLOCK_EVERY: u32 = 64;

/// The longest park without a reading of the clock.
pub(crate) const PARK_MAX: Duration = Duration::from_millis(100);

/// The end of a park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// The rank did not park: something had moved.
    Not,
    /// A peer, a device or the control thread woke the rank.
    Woken,
    /// The park lasted as long as it may.
    Whole,
}

/// The deadline of a call. The time counts from the first park that is not cut short. Reading the
/// clock is a system call on some machines, so parks that end early are not timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    timeout: Duration,
    end: Option<Instant>,
    woken: u32,
}

impl Deadline {
    pub(crate) const fn new(timeout: Duration) -> Self {
        Self { timeout, end: None, woken: 0 }
    }

    /// The longest time that the next park may last.
    pub(crate) fn park_limit(&self) -> Duration {
        self.timeout.min(PARK_MAX)
    }

    /// Whether the call's time is up after this park.
    pub(crate) fn is_over_after(&mut self, parked: Parked) -> bool {
        self.woken += u32::from(parked == Parked::Woken);
        if parked != Parked::Whole && !self.woken.is_multiple_of(CLOCK_EVERY) {
            return false;
        }
        let (now, slept) = (Instant::now(), self.park_limit());
        // Parks that ended early before this first reading are not counted: their length is
        // unknown.
        now >= *self.end.get_or_insert_with(|| now + self.timeout - slept)
    }
}

impl WaitPolicy {
    /// The policy for the ranks of one machine.
    ///
    /// Where each rank has a core of its own, spinning finds a message that is already on its way.
    /// Where ranks share cores, the sender may need this core. Yielding is then far cheaper than a
    /// park and a wake-up if all peers share memory. Without shared memory a device or the kernel
    /// wakes a parked rank, so yielding gains nothing.
    pub(crate) const fn new(occupancy: Occupancy, shares_memory: bool) -> Self {
        let (spin_max, yields, early_yields) = match (occupancy.is_oversubscribed(), shares_memory)
        {
            (false, _) => (Duration::from_micros(50), 20, 0),
            (true, true) => (Duration::ZERO, 32, 32),
            (true, false) => (Duration::ZERO, 2, 0),
        };
        Self { spin: spin_max, yields, early_yields, spin_max, brief_parks: 0 }
    }

    /// Retries without a poll in between. Peers that have cores of their own usually answer a short
    /// message within them.
    pub(crate) const fn early_spins(&self) -> u32 {
        if self.spin_max.is_zero() { 0 } else { CLOCK_EVERY }
    }

    /// Rounds that yield and retry before the backoff begins. On shared cores a short call usually
    /// ends after one or two of them.
    pub(crate) const fn early_yields(&self) -> u32 {
        self.early_yields
    }

    /// The spin time of the next wait; zero if the rank yields at once.
    const fn spin_time(&self) -> Duration {
        if self.brief_parks < BRIEF_PARKS { self.spin } else { PATIENT_SPIN }
    }

    /// Adjusts the spin time after a wait. A rank that spun in vain until it yielded may have
    /// occupied the core that its peer needed, so the next spin is shorter. After some brief waits
    /// with parks one spin is patient. If that one finds the peer, the spin time is whole again.
    pub(crate) fn learn(&mut self, ended: Ended) {
        if self.spin_max.is_zero() || ended == Ended::AtOnce {
            return;
        }
        // A wait within the ordinary time needs no patience, and leaves it to the next one.
        let is_short = matches!(ended, Ended::Spinning(wait) if wait <= self.spin);
        let was_patient = self.brief_parks == BRIEF_PARKS && !is_short;
        self.spin = match ended {
            Ended::Spinning(_) if was_patient => self.spin_max,
            Ended::Spinning(_) => (self.spin * 2).min(self.spin_max),
            _ => (self.spin / 2).max(SPIN_MIN),
        };
        if was_patient {
            self.brief_parks = 0;
        } else if matches!(ended, Ended::Parked(wait) if wait <= BRIEF_WAIT) {
            self.brief_parks += 1;
        }
    }
}

impl Backoff {
    /// Whether to try the call again at once, after a poll that `found` something. Not if many
    /// polls in a row found something and none of them moved the call.
    pub(crate) const fn is_worth_a_pass(&mut self, found: bool) -> bool {
        self.busy_polls = if found { self.busy_polls.saturating_add(1) } else { 0 };
        found && self.busy_polls < CLOCK_EVERY
    }

    /// Counts a round in which a peer may be reading this rank's memory. Whether to yield in it
    /// rather than park.
    pub(crate) const fn may_yield_to_reader(&mut self) -> bool {
        self.reader_yields = self.reader_yields.saturating_add(1);
        self.reader_yields <= READER_YIELDS
    }

    /// Counts a fruitless round and returns the next action. `None` means to spin on at once. Now
    /// and then it returns `Spin` instead: the caller then checks whether the job has failed.
    pub(crate) fn next(&mut self, policy: WaitPolicy) -> Option<Pause> {
        self.rounds += 1;
        let spin = policy.spin_time();
        if self.yielded == 0 && !spin.is_zero() {
            if !self.rounds.is_multiple_of(CLOCK_EVERY) {
                return None;
            }
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() < spin {
                return Some(Pause::Spin);
            }
        }
        if self.yielded < policy.yields {
            self.yielded += 1;
            return Some(Pause::Yield);
        }
        self.has_parked = true;
        Some(Pause::Park)
    }

    /// The state of the wait, which ends now.
    pub(crate) fn ended(&self) -> Ended {
        match self.since {
            None => Ended::AtOnce,
            Some(since) if self.has_parked => Ended::Parked(since.elapsed()),
            Some(_) if self.yielded > 0 => Ended::Yielding,
            Some(since) => Ended::Spinning(since.elapsed()),
        }
    }
}

/// Parks the thread until one of the descriptors is readable, or for `limit`. It may return early.
/// Whether it did.
pub(crate) fn park<const N: usize>(fds: &[Option<BorrowedFd<'_>>; N], limit: Duration) -> bool {
    let Some(any) = fds.iter().flatten().next() else {
        std::thread::sleep(limit);
        return false;
    };
    // A duplicate of an open descriptor fills each empty entry.
    let mut set: [PollFd<'_>; N] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(fds[i].unwrap_or(*any), PollFlags::IN));
    #[cfg(test)]
    if crate::interleave::is_on() {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        return crate::interleave::block(Some(limit), || poll(&mut set, Some(&now)) != Ok(0));
    }
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // A signal may interrupt the poll: the caller checks its own state in any case.
    poll(&mut set, Some(&limit)) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The actions of a rank in `rounds` fruitless rounds.
    fn wait(policy: WaitPolicy, rounds: usize) -> Vec<Pause> {
        let mut backoff = Backoff::default();
        (0..rounds).filter_map(|_| backoff.next(policy)).collect()
    }

    #[test]
    fn ranks_without_a_core_of_their_own_never_spin() {
        for shares_memory in [true, false] {
            let policy = WaitPolicy::new(Occupancy { ranks: 8, cpus: 2 }, shares_memory);
            assert_eq!((policy.early_spins(), policy.early_yields() > 0), (0, shares_memory));
            let pauses = wait(policy, 100);
            let (yields, parks) = pauses.split_at(policy.yields as usize);
            assert!(yields.iter().all(|pause| *pause == Pause::Yield));
            assert!(parks.iter().all(|pause| *pause == Pause::Park) && !parks.is_empty());
        }
    }

    #[test]
    fn busy_polls_that_move_nothing_end_in_a_pause() {
        let mut backoff = Backoff::default();
        let passes = (0..1000).filter(|_| backoff.is_worth_a_pass(true)).count();
        assert!((1..1000).contains(&passes));
        assert!(!backoff.is_worth_a_pass(false));
        assert!(backoff.is_worth_a_pass(true), "something new");
    }

    #[test]
    fn a_rank_parks_in_the_end_though_a_peer_still_reads() {
        let mut backoff = Backoff::default();
        let yields = (0..100_000).filter(|_| backoff.may_yield_to_reader()).count();
        assert!((100..10_000).contains(&yields), "{yields}");
    }

    #[test]
    fn the_deadline_passes_however_parks_end() {
        let zero = Deadline::new(Duration::ZERO).is_over_after(Parked::Whole);
        assert!(zero, "all its time is up");
        for parked in [Parked::Woken, Parked::Whole] {
            let mut deadline = Deadline::new(Duration::from_millis(150));
            let begin = Instant::now();
            while !deadline.is_over_after(parked) {
                std::thread::sleep(Duration::from_millis(1));
                assert!(begin.elapsed() < Duration::from_secs(60), "the call never ends");
            }
        }
    }

    /// The policy of two ranks with a core each.
    fn of_two() -> WaitPolicy {
        WaitPolicy::new(Occupancy { ranks: 2, cpus: 2 }, true)
    }

    #[test]
    fn the_spin_time_shrinks_after_spins_in_vain_and_grows_back() {
        let mut policy = of_two();
        assert!(policy.early_spins() > 0 && policy.early_yields() == 0);
        let longest = policy.spin_time();
        for in_vain in [Ended::Yielding, Ended::Parked(Duration::from_millis(1))] {
            (0..20).for_each(|_| policy.learn(in_vain));
            assert_eq!(policy.spin_time(), SPIN_MIN);
            (0..20).for_each(|_| policy.learn(Ended::Spinning(SPIN_MIN)));
            assert_eq!(policy.spin_time(), longest);
        }
    }

    #[test]
    fn a_wait_knows_its_end() {
        let (policy, mut backoff) = (WaitPolicy { spin: SPIN_MIN, ..of_two() }, Backoff::default());
        assert_eq!(backoff.ended(), Ended::AtOnce);
        let mut ends = Vec::new();
        while backoff.next(policy) != Some(Pause::Park) {
            ends.push(match backoff.ended() {
                Ended::Spinning(_) => Ended::Spinning(SPIN_MIN),
                ended => ended,
            });
        }
        ends.dedup();
        assert_eq!(ends, [Ended::AtOnce, Ended::Spinning(SPIN_MIN), Ended::Yielding]);
        assert!(matches!(backoff.ended(), Ended::Parked(wait) if wait >= SPIN_MIN));
    }

    /// The end of a wait in which the peer's message comes after `late`, and its length if a
    /// parked rank wakes after `wake`.
    fn wait_of(policy: &WaitPolicy, late: Duration, wake: Duration) -> (Ended, Duration) {
        let spin = policy.spin_time();
        if late.is_zero() {
            (Ended::AtOnce, late)
        } else if late <= spin {
            (Ended::Spinning(late), late)
        } else if late <= spin + Duration::from_micros(6) {
            (Ended::Yielding, late)
        } else {
            (Ended::Parked(late + wake), late + wake)
        }
    }

    /// Two ranks exchange messages. One of them is late once, so that the other parks. Afterwards
    /// each would wait for the other's wake-up for ever. A rank also has short waits.
    #[test]
    fn two_ranks_that_wait_for_each_others_wake_up_end_that() {
        for (wake, short) in [(20, 0), (40, 1), (75, 0), (75, 1), (120, 0), (120, 1)] {
            let [wake, short] = [wake, short].map(Duration::from_micros);
            let mut policies = [of_two(); 2];
            let mut begins = [Duration::ZERO, Duration::from_micros(60)];
            let mut parks = Vec::new();
            for call in 0..1000 {
                let sent = begins.map(|begin| begin + Duration::from_micros(1));
                for (own, (policy, begin)) in policies.iter_mut().zip(&mut begins).enumerate() {
                    let late = sent[1 - own].saturating_sub(*begin);
                    let (ended, length) = wait_of(policy, late, wake);
                    policy.learn(ended);
                    policy.learn(wait_of(policy, short, wake).0);
                    *begin += length;
                    parks.extend(matches!(ended, Ended::Parked(_)).then_some(call));
                }
            }
            let last = parks.last().copied().unwrap_or_default();
            assert!(last < 50, "a rank parks in call {last} of 1000, and wakes after {wake:?}");
        }
    }

    /// The peer of a rank is always late by the same time, independent of this rank.
    #[test]
    fn a_rank_does_not_spin_for_long_while_its_peer_is_late() {
        for late in [70, 150, 250, 1000, 100_000].map(Duration::from_micros) {
            let (mut policy, mut spun, calls) = (of_two(), Duration::ZERO, 1000);
            for _ in 0..calls {
                spun += policy.spin_time().min(late);
                policy.learn(wait_of(&policy, late, Duration::from_micros(50)).0);
            }
            assert!(spun / calls <= late / 2, "{spun:?} of {calls} waits of {late:?}");
            assert!(spun / calls <= Duration::from_micros(40), "{spun:?} for {late:?}");
        }
    }
}
