//! Keeps the descriptor of a parked caller readable until `disarm`. A `poll` in between consumes
//! events, and without this the descriptor would no longer show them.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::sys;

/// A waker of the endpoint's own caller.
#[derive(Debug)]
pub(super) struct Waker {
    waker: sys::Waker,
    is_readable: Cell<bool>,
    /// Whether the caller is about to park.
    armed: bool,
}

impl Waker {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { waker: sys::Waker::new()?, is_readable: Cell::new(false), armed: false })
    }

    pub(super) const fn arm(&mut self) {
        self.armed = true;
    }

    /// Wakes the caller if it is about to park.
    pub(super) fn wake(&self) {
        if self.armed && !self.is_readable.replace(true) {
            self.waker.wake();
        }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
        if self.is_readable.take() {
            self.waker.clear();
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
