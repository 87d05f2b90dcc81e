//! Waiting: spin while it pays, then let others run, then sleep.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a rank that finds nothing to do goes on trying before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Time to try without leaving the core,
    spin: Duration,
    /// and after that, rounds in which other threads may run first.
    yields: u32,
}

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
}

/// How many rounds pass between looks at the clock.
const LOOK_EVERY: u32 = 64;

impl Patience {
    /// For `ranks` ranks that share `cores` cores: where every rank has a core to itself, a message
    /// is usually on its way already; where not, the sender may need this very core.
    pub(crate) const fn new(ranks: usize, cores: usize) -> Self {
        if ranks <= cores {
            Self { spin: Duration::from_micros(50), yields: 20 }
        } else {
            Self { spin: Duration::ZERO, yields: 8 }
        }
    }
}

impl Idle {
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

/// Sleeps until one of the descriptors is readable, or for `limit`. May return early.
pub(crate) fn park<const N: usize>(fds: &[Option<BorrowedFd<'_>>; N], limit: Duration) {
    let Some(any) = fds.iter().flatten().next() else {
        return std::thread::sleep(limit);
    };
    // Descriptors that are not there are listed as one that is: it wakes us just the same.
    let mut set: [PollFd<'_>; N] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(fds[i].unwrap_or(*any), PollFlags::IN));
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Interrupted or not: the caller looks for itself.
    poll(&mut set, Some(&limit)).ok();
}
