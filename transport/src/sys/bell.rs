//! Descriptors that one thread makes readable and another parks on: within a process, and between
//! processes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
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
pub(crate) struct NamedBell(OwnedFd);

impl NamedBell {
    /// The bell of that name.
    pub(crate) fn new(name: &SocketAddrUnix) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        bind(&socket, name)?;
        Ok(Self(socket))
    }

    /// Makes another process's bell readable, if it is still there.
    pub(crate) fn ring(&self, name: &SocketAddrUnix) {
        // It fails only where the bell is gone, or so many have rung that it is readable already.
        sendto(&self.0, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT, name).ok();
    }

    /// Takes one ring back.
    pub(crate) fn silence(&self) {
        // It fails only where nothing rang.
        recv(&self.0, &mut [0_u8; 1][..], RecvFlags::DONTWAIT).ok();
    }
}

impl AsFd for NamedBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
