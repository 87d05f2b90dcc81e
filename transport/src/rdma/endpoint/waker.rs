//! The descriptor that wakes a parked caller, and its own event sources.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::sys::Waker as EventWaker;
use crate::tcp::ticker::Ticker;

/// The descriptor that wakes a parked caller. The caller is *armed* from just before it parks until
/// it is awake again.
#[derive(Debug)]
pub(super) struct Waker {
    wake: OwnedFd,
    /// Rings if a `poll` has moved something while the caller was armed, unless a device wakes the
    /// caller anyway.
    bell: EventWaker,
    is_rung: bool,
    /// Rings at a deadline.
    ticker: Ticker,
    is_armed: bool,
    /// Something has moved while the caller was armed.
    has_moved: bool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (bell, ticker) = (EventWaker::new()?, Ticker::new()?);
        let it = Self { wake, bell, is_rung: false, ticker, is_armed: false, has_moved: false };
        it.watch(&it.bell)?;
        it.watch(&it.ticker)?;
        Ok(it)
    }

    /// Lets a descriptor wake the caller. The ports of a device have one descriptor for its events.
    pub(super) fn watch(&self, fd: impl AsFd) -> io::Result<()> {
        match epoll::add(&self.wake, fd, EventData::new_u64(0), EventFlags::IN) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets a descriptor wake the caller no more.
    pub(super) fn forget(&self, fd: impl AsFd) {
        epoll::delete(&self.wake, fd).ok();
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Notes that a `poll` moved something, which an armed caller then knows.
    pub(super) const fn moved(&mut self, moved: bool) {
        self.has_moved |= moved && self.is_armed;
    }

    /// Keeps the caller from sleeping.
    pub(super) fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            self.bell.wake();
        }
    }

    /// Notes that the caller is about to park.
    pub(super) const fn arm(&mut self) {
        self.is_armed = true;
    }

    /// Wakes the caller at `alarm`.
    pub(super) fn ring_at(&mut self, alarm: Option<Instant>) {
        self.ticker.ring_at(alarm);
    }

    /// Notes that the caller is awake. Returns whether it may have slept.
    pub(super) const fn disarm(&mut self) -> bool {
        self.is_armed = false;
        !std::mem::replace(&mut self.has_moved, false)
    }

    /// Silences the bell. Returns whether it rang.
    pub(super) fn silence(&mut self) -> bool {
        let was_rung = std::mem::replace(&mut self.is_rung, false);
        if was_rung {
            self.bell.clear();
        }
        was_rung
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_awake(waker: &Waker, patience: Duration) -> bool {
        let fd = waker.fd();
        let patience = Timespec::try_from(patience).unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap() > 0
    }

    #[test]
    fn bells_and_time_wake_the_caller() {
        let mut waker = Waker::new().unwrap();
        assert!(!is_awake(&waker, Duration::ZERO));
        waker.ring();
        waker.ring();
        assert!(is_awake(&waker, Duration::ZERO));
        assert!(waker.silence() && !waker.silence() && !is_awake(&waker, Duration::ZERO));
        waker.ring_at(Some(Instant::now() + Duration::from_millis(10)));
        assert!(is_awake(&waker, Duration::from_secs(60)));
    }

    #[test]
    fn a_caller_that_moved_something_has_not_slept() {
        let mut waker = Waker::new().unwrap();
        waker.moved(true);
        waker.arm();
        assert!(waker.is_armed() && waker.disarm(), "it moved before the caller armed");
        waker.arm();
        waker.moved(true);
        waker.moved(false);
        assert!(!waker.disarm() && waker.disarm());
    }
}
