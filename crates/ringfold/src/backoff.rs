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
}

/// The shortest spin time, after repeated spins in vain.
const SPIN_MIN: Duration = Duration::from_micros(1);

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
        Self { spin: spin_max, yields, early_yields, spin_max }
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

    /// Adjusts the spin time after a wait. A rank that spun in vain until it yielded may have
    /// occupied the core that its peer needed, so the next spin is shorter.
    pub(crate) fn learn(&mut self, backoff: Backoff) {
        if backoff.yielded > 0 {
            self.spin = (self.spin / 2).max(SPIN_MIN).min(self.spin_max);
        } else if backoff.since.is_some() {
            self.spin = (self.spin * 2).min(self.spin_max);
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
        if self.yielded == 0 && !policy.spin.is_zero() {
            if !self.rounds.is_multiple_of(CLOCK_EVERY) {
                return None;
            }
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() < policy.spin {
                return Some(Pause::Spin);
            }
        }
        if self.yielded < policy.yields {
            self.yielded += 1;
            return Some(Pause::Yield);
        }
        Some(Pause::Park)
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

    #[test]
    fn the_spin_time_shrinks_after_spins_in_vain_and_grows_back() {
        let mut policy = WaitPolicy::new(Occupancy { ranks: 2, cpus: 2 }, true);
        assert!(policy.early_spins() > 0 && policy.early_yields() == 0);
        let longest = policy.spin;
        let in_vain =
            Backoff { rounds: 1000, since: Some(Instant::now()), yielded: 1, ..Backoff::default() };
        (0..20).for_each(|_| policy.learn(in_vain));
        assert_eq!(policy.spin, SPIN_MIN);
        let worth_it = Backoff { yielded: 0, ..in_vain };
        (0..20).for_each(|_| policy.learn(worth_it));
        assert_eq!(policy.spin, longest);
    }
}
