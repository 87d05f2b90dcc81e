//! Requests about TCP connections that `rustix` lacks: late choice of the port, and the number of
//! bytes that the other end has not acknowledged.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _};

/// Bytes of the option value.
#[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
const LEN: libc::socklen_t = size_of::<c_int>() as libc::socklen_t;

/// Lets the kernel choose the port of a bound socket when it connects rather than when it is bound.
pub(crate) fn choose_port_late(socket: impl AsFd) -> io::Result<()> {
    let yes: c_int = 1;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the option takes one `c_int`, and the kernel only reads it during the call.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const yes).cast(),
            LEN,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of bytes of a TCP connection that the other end's kernel has not acknowledged. The
/// end of the stream counts as one byte.
pub(crate) fn outgoing(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the request, `SIOCOUTQ` under its name for terminals, fills in one `c_int`.
    match unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}
