//! Waiting: spin while it pays, then let others run, then sleep.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a rank that finds nothing to do goes on trying before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Fruitless rounds without leaving the core,
    spins: u32,
    /// and after those, rounds in which other threads may run first.
    yields: u32,
}

/// What to do about having nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Spin,
    Yield,
    Park,
}

impl Patience {
    /// For `ranks` ranks that share `cores` cores: where every rank has a core to itself, a message
    /// is usually on its way already; where not, the sender may need this very core.
    pub(crate) const fn new(ranks: usize, cores: usize) -> Self {
        if ranks <= cores {
            Self { spins: 4_000, yields: 50 }
        } else {
            Self { spins: 4, yields: 16 }
        }
    }

    /// What to do after `idle` fruitless rounds in a row.
    pub(crate) const fn stage(self, idle: u32) -> Stage {
        if idle <= self.spins {
            Stage::Spin
        } else if idle <= self.spins + self.yields {
            Stage::Yield
        } else {
            Stage::Park
        }
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
