//! A timer that runs only while something waits for time to pass.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Time between two ticks.
const PERIOD: Duration = Duration::from_millis(20);

/// A timer descriptor.
#[derive(Debug)]
pub struct Ticker {
    timer: OwnedFd,
    /// The time of the next tick, or of the last one.
    at: Option<Instant>,
}

impl Ticker {
    /// Makes a timer that does not run.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Monotonic, flags)?, at: None })
    }

    /// Ticks after a period, unless it runs.
    pub fn start(&mut self) {
        if self.at.is_none() {
            self.rearm();
        }
    }

    /// Ticks once more after a period.
    pub fn rearm(&mut self) {
        self.ring_at(Some(Instant::now() + PERIOD));
    }

    /// Ticks no more.
    pub fn stop(&mut self) {
        self.ring_at(None);
    }

    /// Ticks once at `at`, or never again if `None`. Makes no system call if that is set already.
    pub fn ring_at(&mut self, at: Option<Instant>) {
        if std::mem::replace(&mut self.at, at) != at {
            let left = at.map(|at| at.saturating_duration_since(Instant::now()));
            // A time of zero would stop the timer.
            self.set(left.map(|left| left.max(Duration::from_nanos(1))).unwrap_or_default());
        }
    }

    fn set(&self, time: Duration) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let longest = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
        let once = Timespec::try_from(time).unwrap_or(longest);
        let times = Itimerspec { it_interval: never, it_value: once };
        // Fails only for invalid times.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times).ok();
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
