//! A timer that runs only while something waits for time to pass.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Nanoseconds between looks at what waits.
const PERIOD_NS: i64 = 20_000_000;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Ticker {
    timer: OwnedFd,
    runs: bool,
}

impl Ticker {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Monotonic, flags)?, runs: false })
    }

    pub(crate) fn start(&mut self) {
        if !self.runs {
            self.rearm();
        }
    }

    /// Rings once after that time, at once where there is none left.
    pub(crate) fn ring_in(&mut self, time: Duration) {
        self.runs = true;
        self.set(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).max(1));
    }

    /// Rings once more after a period.
    pub(crate) fn rearm(&mut self) {
        self.runs = true;
        self.set(PERIOD_NS);
    }

    pub(crate) fn stop(&mut self) {
        if std::mem::take(&mut self.runs) {
            self.set(0);
        }
    }

    fn set(&self, nanoseconds: i64) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let second = 1_000_000_000;
        let once = Timespec { tv_sec: nanoseconds / second, tv_nsec: nanoseconds % second };
        let times = Itimerspec { it_interval: never, it_value: once };
        // It fails only for times that are none.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times).ok();
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
