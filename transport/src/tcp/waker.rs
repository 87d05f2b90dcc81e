//! Keeps a parked caller's descriptor ringing until it is disarmed: events that a `poll` between
//! has taken note of would leave it silent.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Bell {
    rings: OwnedFd,
    rung: Cell<bool>,
    /// The caller is about to park.
    armed: bool,
}

impl Bell {
    pub(super) fn new() -> Result<Self, Errno> {
        let rings = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { rings, rung: Cell::new(false), armed: false })
    }

    pub(super) const fn arm(&mut self) {
        self.armed = true;
    }

    /// Rings if somebody is about to park.
    pub(super) fn ring(&self) {
        if self.armed && !self.rung.get() {
            self.rung.set(rustix::io::write(&self.rings, &1_u64.to_le_bytes()).is_ok());
        }
    }

    pub(super) fn silence(&mut self) {
        self.armed = false;
        if self.rung.take() {
            rustix::io::read(&self.rings, &mut [0_u8; 8]).ok();
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}
