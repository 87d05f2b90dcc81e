//! Descriptors that one thread makes readable and another parks on, within a process or across
//! processes.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
    sendto, socket_with,
};

/// Wakes a thread of this process, by an eventfd. No method blocks.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // Fails only if the counter is full, and then the descriptor is readable already.
        rustix::io::write(&self.0, &1_u64.to_le_bytes()).ok();
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn clear(&self) {
        // Fails only if the descriptor is not readable.
        rustix::io::read(&self.0, &mut [0_u8; 8]).ok();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a thread by a datagram socket with a name. Another process needs no descriptor of it, only
/// the name. No method blocks.
#[derive(Debug)]
pub(crate) struct NamedWaker {
    socket: OwnedFd,
    /// Whether some process could not be woken since `take_owed`.
    owes: Cell<bool>,
}

impl NamedWaker {
    /// Makes the waker of that name.
    pub(crate) fn new(name: &SocketAddrUnix) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        bind(&socket, name)?;
        Ok(Self { socket, owes: Cell::new(false) })
    }

    /// Wakes the process whose waker has this `name`, if it still exists. Returns false if the
    /// system has no room for the datagram. The system charges this socket for datagrams that no
    /// process has read, some hundreds at most.
    pub(crate) fn wake(&self, name: &SocketAddrUnix) -> bool {
        let sent = sendto(&self.socket, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT, name);
        let is_full = matches!(sent, Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM));
        if is_full {
            self.owes.set(true);
        }
        !is_full
    }

    /// Whether some process could not be woken since the last `take_owed`.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes.get()
    }

    /// Returns `owes()` and resets it.
    pub(crate) fn take_owed(&self) -> bool {
        self.owes.take()
    }

    /// Takes one datagram back.
    pub(crate) fn clear(&self) {
        // Fails only if there is none.
        recv(&self.socket, &mut [0_u8; 1][..], RecvFlags::DONTWAIT).ok();
    }
}

impl AsFd for NamedWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
