//! A timer that runs only while something waits for time to pass.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Nanoseconds between looks at what waits.
const PERIOD_NS: i64 = 20_000_000;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Ticker {
    timer: OwnedFd,
    runs: bool,
}

impl Ticker {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Monotonic, flags)?, runs: false })
    }

    pub(super) fn start(&mut self) {
        if !self.runs {
            self.rearm();
        }
    }

    /// Rings once more after a period.
    pub(super) fn rearm(&mut self) {
        self.runs = true;
        self.set(PERIOD_NS);
    }

    pub(super) fn stop(&mut self) {
        self.runs = false;
        self.set(0);
    }

    fn set(&self, nanoseconds: i64) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
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
