//! File descriptors that a launcher left open for this process, known only by number.
//!
//! Taking ownership of a number is `unsafe`, but asking the kernel for a duplicate is not. The
//! original stays open, which is harmless for a stream that is read to its end.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// A duplicate of this process's file descriptor `number`.
///
/// # Errors
/// There is no such descriptor, or it is a socket in a container that forbids `pidfd_getfd`.
pub(crate) fn duplicate(number: i32) -> io::Result<OwnedFd> {
    let direct = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|me| pidfd_getfd(me, number, PidfdGetfdFlags::empty()));
    if let Ok(fd) = direct {
        return Ok(fd);
    }
    // Where a sandbox forbids duplication, a descriptor that is not a socket can be opened again.
    let path = format!("/proc/self/fd/{number}");
    OpenOptions::new().read(true).open(path).map(OwnedFd::from)
}
