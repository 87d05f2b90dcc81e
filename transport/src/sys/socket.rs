//! Requests about sockets that `rustix` lacks: late choice of the port, the bytes that the other
//! end has acknowledged and those that it has not, and a filter of datagrams.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

/// Lets the kernel choose the port of a bound socket when it connects rather than when it is bound.
pub(crate) fn choose_port_late(socket: impl AsFd) -> io::Result<()> {
    let yes: c_int = 1;
    // SAFETY: the option takes one `c_int`.
    unsafe { set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &yes) }
}

/// Has the kernel drop each datagram to `socket` that does not begin with `token`, in its sender's
/// time. A dropped datagram takes no place in the socket's queue and wakes no process.
#[expect(clippy::big_endian_bytes, reason = "a filter loads words in network order")]
pub(crate) fn admit_only(socket: impl AsFd, token: [u8; 8]) -> io::Result<()> {
    const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const SKIP_UNLESS_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, skipped: u8, k: u32| libc::sock_filter {
        code: code.try_into().unwrap_or(u16::MAX),
        jt: 0,
        jf: skipped,
        k,
    };
    let [a, b, c, d, e, f, g, h] = token;
    let mut steps = [
        step(LOAD_WORD, 0, 0),
        step(SKIP_UNLESS_EQUAL, 3, u32::from_be_bytes([a, b, c, d])),
        step(LOAD_WORD, 0, 4),
        step(SKIP_UNLESS_EQUAL, 1, u32::from_be_bytes([e, f, g, h])),
        // The bytes to keep of a datagram: all, or none. A load beyond its end also keeps none.
        step(RETURN, 0, u32::MAX),
        step(RETURN, 0, 0),
    ];
    let len = steps.len().try_into().unwrap_or(0);
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    // SAFETY: the option takes one `sock_fprog`. The kernel copies its steps during the call.
    unsafe { set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Sets an option of a socket.
///
/// # Safety
/// The option takes one `T`, and the kernel uses it only during the call.
unsafe fn set<T>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let (socket, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_ref(value).cast());
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has `len` bytes; the caller promises the rest.
    match unsafe { libc::setsockopt(socket, level, option, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

/// The progress of a TCP connection since it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The bytes that the other end's kernel has acknowledged.
    pub(crate) bytes: u64,
    /// The time for which sent bytes were not acknowledged, without that for which the receiver
    /// had no room. Its unit is the kernel's tick, a few milliseconds.
    pub(crate) busy: Duration,
}

/// Returns the progress of a TCP connection. Linux before 4.10 does not tell.
pub(crate) fn delivery(socket: impl AsFd) -> Option<Delivery> {
    const KNOWN: usize = offset_of!(libc::tcp_info, tcpi_sndbuf_limited);
    // SAFETY: a `tcp_info` is numbers, for which zeros are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let socket = socket.as_fd().as_raw_fd();
    #[expect(clippy::cast_possible_truncation, reason = "some hundred bytes")]
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let into = (&raw mut info).cast();
    // SAFETY: `info` has `len` bytes, of which the kernel fills in as many as it knows.
    let result =
        unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut len) };
    (result == 0 && len as usize >= KNOWN).then(|| Delivery {
        bytes: info.tcpi_bytes_acked,
        busy: Duration::from_micros(info.tcpi_busy_time.saturating_sub(info.tcpi_rwnd_limited)),
    })
}
