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

use super::descriptors::{receive, transmit};
use super::socket::admit_only;

/// Wakes a thread of this process, which parks on its descriptor: an eventfd. No method blocks.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes an unreadable descriptor.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // Fails only if the counter is full, and then the descriptor is readable already.
        rustix::io::write(&self.0, &1_u64.to_le_bytes()).ok();
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        // Fails only if the descriptor is not readable.
        rustix::io::read(&self.0, &mut [0_u8; 8]).ok();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bytes of a waker's token.
const TOKEN_BYTES: usize = 8;

/// The address of a `NamedWaker`: its name, and the token that each datagram to it begins with. All
/// processes of the network namespace can see the name. The token keeps those away that do not know
/// it.
#[derive(Clone)]
pub(crate) struct WakerAddress {
    pub(crate) name: SocketAddrUnix,
    pub(crate) token: [u8; TOKEN_BYTES],
}

impl std::fmt::Debug for WakerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WakerAddress").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Wakes a thread by a datagram socket with an address. Another process needs no descriptor of it,
/// only the address, and can also send it a descriptor. No method blocks.
#[derive(Debug)]
pub(crate) struct NamedWaker {
    socket: OwnedFd,
    token: [u8; TOKEN_BYTES],
    /// Whether some process could not be woken since `take_owed`.
    owes: Cell<bool>,
}

impl NamedWaker {
    /// Makes the waker of that address.
    pub(crate) fn new(address: &WakerAddress) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        if let Err(error) = admit_only(&socket, address.token) {
            tracing::debug!("foreign datagrams can delay the ranks of this host: {error}");
        }
        bind(&socket, &address.name)?;
        Ok(Self { socket, token: address.token, owes: Cell::new(false) })
    }

    /// Wakes the process whose waker has this address, if it still exists. Returns false if the
    /// system has no room for the datagram. The system charges this socket for datagrams that no
    /// process has read, some hundreds at most.
    pub(crate) fn wake(&self, to: &WakerAddress) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendto(&self.socket, &to.token, flags, &to.name);
        let is_full = matches!(sent, Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM));
        if is_full {
            self.owes.set(true);
        }
        !is_full
    }

    /// Sends a descriptor to the process whose waker has this address.
    pub(crate) fn pass(&self, to: &WakerAddress, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        transmit(&self.socket, Some(&to.name), &to.token, &[descriptor])
    }

    /// Receives a descriptor that `pass` sent here. An error without an operating system's number
    /// means that a datagram was consumed that brought none.
    pub(crate) fn receive(&self) -> io::Result<OwnedFd> {
        let mut token = [0; TOKEN_BYTES];
        let (bytes, descriptors) = receive(&self.socket, &mut token)?;
        match <[OwnedFd; 1]>::try_from(descriptors) {
            Ok([descriptor]) if token[..bytes] == self.token => Ok(descriptor),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a datagram without a descriptor")),
        }
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
