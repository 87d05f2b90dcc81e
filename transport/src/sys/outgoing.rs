//! What a connection still has to bring to its other end.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Bytes of a TCP connection that the other end's kernel has not acknowledged. The end of the
/// stream counts as one.
pub(crate) fn outgoing(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the request, which is `SIOCOUTQ` by the name for sockets, fills in one `c_int`.
    match unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}
