//! When the kernel chooses the port of a connection.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _};

/// Bytes of the option's value.
#[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
const LEN: libc::socklen_t = size_of::<c_int>() as libc::socklen_t;

/// Lets the kernel choose the port of a bound socket as it connects, and not before.
pub(crate) fn choose_port_late(socket: impl AsFd) -> io::Result<()> {
    let yes: c_int = 1;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the option takes one `c_int`, which the kernel only reads during the call.
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
