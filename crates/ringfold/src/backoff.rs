//! Waiting: spin while it pays, then let others run, then sleep.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ringfold_topology::Crowd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a rank that finds nothing to do goes on trying before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Time to try without leaving the core,
    spin: Duration,
    /// and after that, rounds in which other threads may run first.
    yields: u32,
    /// Such rounds before any of that, for a step that is done whole.
    turns: u32,
    /// The longest time that `spin` may grow to.
    spin_max: Duration,
}

/// The shortest time to spin, where spinning was in vain again and again.
const SPIN_MIN: Duration = Duration::from_micros(1);

/// What to do about having nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Spin,
    Yield,
    Park,
}

/// The fruitless rounds since something last moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    rounds: u32,
    since: Option<Instant>,
    yielded: u32,
    lingered: u32,
    /// Polls in a row that found something.
    stirred: u32,
}

/// So often who waits for a reader lets others run before it sleeps: for longer than it takes to
/// copy what is copied at a time, and to be woken.
const LINGER: u32 = 400;

/// How many rounds, or naps that something ended, pass between looks at the clock.
const LOOK_EVERY: u32 = 64;

/// The longest time to sleep without a look at it.
const NAP: Duration = Duration::from_millis(100);

/// How a rank slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nap {
    /// Not at all: something had moved.
    None,
    /// Until something woke it.
    Woken,
    /// As long as it may.
    Whole,
}

/// How long a call may take once it has nothing better to do than sleep. On some machines every
/// look at the clock is a call of the kernel, so naps that something ends are not timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vigil {
    timeout: Duration,
    deadline: Option<Instant>,
    woken: u32,
}

impl Vigil {
    pub(crate) const fn new(timeout: Duration) -> Self {
        Self { timeout, deadline: None, woken: 0 }
    }

    /// How long to sleep at most.
    pub(crate) fn nap_limit(&self) -> Duration {
        self.timeout.min(NAP)
    }

    /// Whether the call's time is up after such a nap.
    pub(crate) fn is_over_after(&mut self, nap: Nap) -> bool {
        self.woken += u32::from(nap == Nap::Woken);
        if nap != Nap::Whole && !self.woken.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        let (now, slept) = (Instant::now(), self.nap_limit());
        // Others than whole ones came before, of which nobody knows how long they were.
        now >= *self.deadline.get_or_insert_with(|| now + self.timeout - slept)
    }
}

impl Patience {
    /// For ranks of one machine: where every rank has a core to itself, a message is usually on its
    /// way already; where not, the sender may need this very core. Then yielding in turn is far
    /// cheaper than sleeping and being woken, unless peers do not all share memory: what a device
    /// or the kernel brings wakes who sleeps, and comes no sooner to who is awake.
    pub(crate) const fn new(crowd: Crowd, shares_memory: bool) -> Self {
        let (spin_max, yields, turns) = match (crowd.is_dense(), shares_memory) {
            (false, _) => (Duration::from_micros(50), 20, 0),
            (true, true) => (Duration::ZERO, 32, 32),
            (true, false) => (Duration::ZERO, 2, 0),
        };
        Self { spin: spin_max, yields, turns, spin_max }
    }

    /// How often to try again at once: where peers have cores of their own, a short message is on
    /// its way already.
    pub(crate) const fn tries(&self) -> u32 {
        if self.spin_max.is_zero() { 0 } else { LOOK_EVERY }
    }

    /// How often to let others run and try again, without a look at anything else: where ranks that
    /// share memory share CPUs, what a short call waits for is there after a turn or two.
    pub(crate) const fn turns(&self) -> u32 {
        self.turns
    }

    /// Learns from a wait that is over. Who waited in vain until it let others run may have kept
    /// the very core that its peer needed: a busy machine has fewer cores for us than it has.
    pub(crate) fn learn(&mut self, idle: Idle) {
        if idle.yielded > 0 {
            self.spin = (self.spin / 2).max(SPIN_MIN).min(self.spin_max);
        } else if idle.since.is_some() {
            self.spin = (self.spin * 2).min(self.spin_max);
        }
    }
}

impl Idle {
    /// Whether to try again at once, after a poll that `found` something: not where that has
    /// moved nothing time and again.
    pub(crate) const fn is_worth_a_sweep(&mut self, found: bool) -> bool {
        self.stirred = if found { self.stirred.saturating_add(1) } else { 0 };
        found && self.stirred < LOOK_EVERY
    }

    /// Counts another round in which to yield rather than to sleep, where a peer copies what was
    /// offered to it: whether there is one.
    pub(crate) const fn lingers(&mut self) -> bool {
        self.lingered = self.lingered.saturating_add(1);
        self.lingered <= LINGER
    }

    /// Counts another fruitless round and says what to do about it. Spinning comes back as `None`
    /// except now and then, when there is time to look whether the job has failed.
    pub(crate) fn next(&mut self, patience: Patience) -> Option<Stage> {
        self.rounds += 1;
        if self.yielded == 0 && !patience.spin.is_zero() {
            if !self.rounds.is_multiple_of(LOOK_EVERY) {
                return None;
            }
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() < patience.spin {
                return Some(Stage::Spin);
            }
        }
        if self.yielded < patience.yields {
            self.yielded += 1;
            return Some(Stage::Yield);
        }
        Some(Stage::Park)
    }
}

/// Sleeps until one of the descriptors is readable, or for `limit`. May return early; whether
/// that may be.
pub(crate) fn park<const N: usize>(fds: &[Option<BorrowedFd<'_>>; N], limit: Duration) -> bool {
    let Some(any) = fds.iter().flatten().next() else {
        std::thread::sleep(limit);
        return false;
    };
    // Descriptors that are not there are listed as one that is: it wakes us just the same.
    let mut set: [PollFd<'_>; N] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(fds[i].unwrap_or(*any), PollFlags::IN));
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Interrupted or not: the caller looks for itself.
    poll(&mut set, Some(&limit)) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank does in `rounds` fruitless rounds.
    fn wait(patience: Patience, rounds: usize) -> (Idle, Vec<Stage>) {
        let mut idle = Idle::default();
        let stages = (0..rounds).filter_map(|_| idle.next(patience)).collect();
        (idle, stages)
    }

    #[test]
    fn ranks_without_a_core_of_their_own_never_spin() {
        for shares_memory in [true, false] {
            let patience = Patience::new(Crowd { ranks: 8, cpus: 2 }, shares_memory);
            assert_eq!((patience.tries(), patience.turns() > 0), (0, shares_memory));
            let (_, stages) = wait(patience, 100);
            let (yields, parks) = stages.split_at(patience.yields as usize);
            assert!(yields.iter().all(|stage| *stage == Stage::Yield));
            assert!(parks.iter().all(|stage| *stage == Stage::Park) && !parks.is_empty());
        }
    }

    #[test]
    fn what_stirs_for_ever_and_moves_nothing_is_waited_for() {
        let mut idle = Idle::default();
        let hurried = (0..1000).filter(|_| idle.is_worth_a_sweep(true)).count();
        assert!((1..1000).contains(&hurried));
        assert!(!idle.is_worth_a_sweep(false));
        assert!(idle.is_worth_a_sweep(true), "something new");
    }

    #[test]
    fn who_waits_for_a_reader_sleeps_in_the_end() {
        let mut idle = Idle::default();
        let lingered = (0..100_000).filter(|_| idle.lingers()).count();
        assert!((100..10_000).contains(&lingered), "{lingered}");
    }

    #[test]
    fn time_is_up_however_naps_end() {
        let zero = Vigil::new(Duration::ZERO).is_over_after(Nap::Whole);
        assert!(zero, "all its time is up");
        for nap in [Nap::Woken, Nap::Whole] {
            let mut vigil = Vigil::new(Duration::from_millis(150));
            let begin = Instant::now();
            while !vigil.is_over_after(nap) {
                std::thread::sleep(Duration::from_millis(1));
                assert!(begin.elapsed() < Duration::from_secs(60), "it goes on for ever");
            }
        }
    }

    #[test]
    fn spinning_in_vain_gets_shorter_and_comes_back() {
        let mut patience = Patience::new(Crowd { ranks: 2, cpus: 2 }, true);
        assert!(patience.tries() > 0 && patience.turns() == 0);
        let longest = patience.spin;
        let in_vain =
            Idle { rounds: 1000, since: Some(Instant::now()), yielded: 1, ..Idle::default() };
        (0..20).for_each(|_| patience.learn(in_vain));
        assert_eq!(patience.spin, SPIN_MIN);
        let worth_it = Idle { yielded: 0, ..in_vain };
        (0..20).for_each(|_| patience.learn(worth_it));
        assert_eq!(patience.spin, longest);
    }
}
