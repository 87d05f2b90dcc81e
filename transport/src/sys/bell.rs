//! A descriptor that one process makes readable and another parks on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// An eventfd. Ringing and silencing never block.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// The bell of a peer, as it came out of a socket.
    pub(crate) fn received(fd: OwnedFd) -> io::Result<Self> {
        // Whoever made it decides whether it blocks; we may not.
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Self(fd))
    }

    /// Makes the descriptor readable.
    pub(crate) fn ring(&self) {
        // It fails only where the counter is full, and then the bell rings already.
        rustix::io::write(&self.0, &1_u64.to_le_bytes()).ok();
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn silence(&self) {
        // It fails only where nothing rang.
        rustix::io::read(&self.0, &mut [0_u8; 8]).ok();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
