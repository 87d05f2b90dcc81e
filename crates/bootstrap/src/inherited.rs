//! File descriptors that a launcher left open for us, known only by number.
//!
//! Taking ownership of a number is `unsafe`; asking the kernel for a duplicate is not. The original
//! stays open, which is harmless for what we read to its end.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// A duplicate of our own file descriptor `number`.
///
/// # Errors
/// There is no such descriptor, or it is a socket in a container that forbids `pidfd_getfd`.
pub(crate) fn duplicate(number: i32) -> io::Result<OwnedFd> {
    let direct = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|me| pidfd_getfd(me, number, PidfdGetfdFlags::empty()));
    if let Ok(fd) = direct {
        return Ok(fd);
    }
    // Where a sandbox forbids that, what is not a socket can be opened once more.
    let path = format!("/proc/self/fd/{number}");
    OpenOptions::new().read(true).open(path).map(OwnedFd::from)
}
