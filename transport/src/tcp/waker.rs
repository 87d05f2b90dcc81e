//! Keeps the descriptor of a parked caller readable until `disarm`. A `poll` in between consumes
//! events, and without this the descriptor would no longer show them.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A waker of the endpoint's own caller.
#[derive(Debug)]
pub(super) struct Waker {
    descriptor: OwnedFd,
    is_readable: Cell<bool>,
    /// Whether the caller is about to park.
    armed: bool,
}

impl Waker {
    pub(super) fn new() -> Result<Self, Errno> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor, is_readable: Cell::new(false), armed: false })
    }

    pub(super) const fn arm(&mut self) {
        self.armed = true;
    }

    /// Wakes the caller if it is about to park.
    pub(super) fn wake(&self) {
        if self.armed && !self.is_readable.get() {
            self.is_readable.set(rustix::io::write(&self.descriptor, &1_u64.to_le_bytes()).is_ok());
        }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
        if self.is_readable.take() {
            rustix::io::read(&self.descriptor, &mut [0_u8; 8]).ok();
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
