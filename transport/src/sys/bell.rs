//! Descriptors that one thread makes readable and another parks on: within a process, and between
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

/// An eventfd, for the threads of a process. Ringing and silencing never block.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
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

/// A datagram socket with a name: other processes need no descriptor to ring it. Ringing and
/// silencing never block.
#[derive(Debug)]
pub(crate) struct NamedBell {
    socket: OwnedFd,
    /// Whether a ring could not be sent.
    owes: Cell<bool>,
}

impl NamedBell {
    /// The bell of that name.
    pub(crate) fn new(name: &SocketAddrUnix) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        bind(&socket, name)?;
        Ok(Self { socket, owes: Cell::new(false) })
    }

    /// Makes another process's bell readable, if it is still there. Returns whether that is done.
    /// The system charges this socket for rings that nobody has taken, some hundreds at most.
    pub(crate) fn ring(&self, name: &SocketAddrUnix) -> bool {
        let sent = sendto(&self.socket, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT, name);
        let is_full = matches!(sent, Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM));
        if is_full {
            self.owes.set(true);
        }
        !is_full
    }

    /// Whether a ring could not be sent since `take_owed` was last called.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes.get()
    }

    /// The same; from now on none is owed.
    pub(crate) fn take_owed(&self) -> bool {
        self.owes.take()
    }

    /// Takes one ring back.
    pub(crate) fn silence(&self) {
        // It fails only where nothing rang.
        recv(&self.socket, &mut [0_u8; 1][..], RecvFlags::DONTWAIT).ok();
    }
}

impl AsFd for NamedBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
