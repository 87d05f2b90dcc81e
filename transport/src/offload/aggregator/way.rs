//! The way of a child's bytes to its aggregator and back: a TCP connection, or a link that has
//! replaced it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::Builder;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{Errno, IoSlice, retry_on_intr};
use rustix::net::{
    SendAncillaryBuffer, SendFlags, Shutdown, getpeername, getsockname, sendmsg, shutdown, sockopt,
};

use crate::contract::{LinkError, LinkFault};
use crate::offload::error::OffloadError;
use crate::offload::links::{AGGREGATOR, Links};
use crate::tcp::socket::{Read, read, write};

/// A way to the aggregator.
#[derive(Debug)]
pub(super) struct Way {
    /// The connection, until a link has replaced it and the aggregator has answered over the link.
    socket: Option<OwnedFd>,
    /// The link, which carries everything once it is there.
    links: Option<Links>,
}

impl Way {
    /// Takes a socket that connects. `epoll` tells its events from now on.
    pub(super) fn new(socket: OwnedFd, epoll: &OwnedFd) -> Result<Self, Errno> {
        epoll::add(epoll, &socket, EventData::new_u64(0), EventFlags::empty())?;
        Ok(Self { socket: Some(socket), links: None })
    }

    /// Whether the socket is connected.
    pub(super) fn is_connected(&self) -> Result<bool, Errno> {
        let Some(socket) = &self.socket else { return Ok(true) };
        sockopt::socket_error(socket)??;
        // A socket has a peer once it is connected.
        Ok(getpeername(socket).is_ok())
    }

    /// This end's address.
    pub(super) fn own_address(&self) -> Result<IpAddr, Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        Ok(SocketAddr::try_from(getsockname(socket)?)?.ip())
    }

    /// Has a link carry everything from now on. The connection stays open until `settle`, and its
    /// end ends the way.
    pub(super) fn change(&mut self, links: Links, epoll: &OwnedFd) -> Result<(), Errno> {
        epoll::add(epoll, links.wake_fd(), EventData::new_u64(2), EventFlags::IN)?;
        self.links = Some(links);
        Ok(())
    }

    /// Closes the connection that a link has replaced.
    pub(super) fn settle(&mut self) {
        if self.links.is_some() {
            self.socket = None;
        }
    }

    /// Does the link's work. Returns whether anything moved.
    pub(super) fn poll(&mut self) -> Result<bool, OffloadError> {
        let Some(links) = &mut self.links else { return Ok(false) };
        if let Some(socket) = &self.socket
            && read(socket, &mut [0]).map_err(ended)? != Read::NotYet
        {
            return Err(OffloadError::Closed);
        }
        links.poll().map_err(broken)
    }

    /// Reads into `bytes`, which is not empty.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<Read, OffloadError> {
        match (&mut self.links, &self.socket) {
            (Some(links), _) => match links.read(AGGREGATOR, bytes).map_err(broken)? {
                0 => Ok(Read::NotYet),
                count => Ok(Read::Bytes(count)),
            },
            (None, Some(socket)) => read(socket, bytes).map_err(ended),
            (None, None) => Ok(Read::End),
        }
    }

    /// Writes as much of `bytes` as possible. The next call must begin with the bytes that are
    /// left.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, OffloadError> {
        match (&mut self.links, &self.socket) {
            (Some(links), _) => links.write(AGGREGATOR, bytes).map_err(broken),
            (None, Some(socket)) => write(socket, bytes).map_err(ended),
            (None, None) => Err(OffloadError::Closed),
        }
    }

    /// Writes a header and its payload, as `write` does.
    pub(super) fn write_both(
        &mut self,
        header: &[u8],
        payload: &[u8],
    ) -> Result<usize, OffloadError> {
        if let (None, Some(socket)) = (&self.links, &self.socket) {
            let parts = [IoSlice::new(header), IoSlice::new(payload)];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let mut control = SendAncillaryBuffer::default();
            return match retry_on_intr(|| sendmsg(socket, &parts, &mut control, flags)) {
                Err(Errno::AGAIN) => Ok(0),
                sent => sent.map_err(ended),
            };
        }
        let sent = self.write(header)?;
        if sent < header.len() || payload.is_empty() {
            return Ok(sent);
        }
        Ok(sent + self.write(payload)?)
    }

    /// Has the descriptor that `epoll` watches tell what can happen next. `is_sending` says that
    /// bytes wait for the connection.
    pub(super) fn arm(&mut self, epoll: &OwnedFd, is_sending: bool) {
        if let Some(links) = &mut self.links {
            links.arm();
        }
        let out = if is_sending { EventFlags::OUT } else { EventFlags::empty() };
        self.watch(epoll, EventFlags::IN | EventFlags::RDHUP | out);
    }

    /// Cancels `arm`.
    pub(super) fn disarm(&mut self, epoll: &OwnedFd) {
        if let Some(links) = &mut self.links {
            links.disarm();
        }
        self.watch(epoll, EventFlags::empty());
    }

    fn watch(&self, epoll: &OwnedFd, flags: EventFlags) {
        let Some(socket) = &self.socket else { return };
        let flags = if self.links.is_some() { flags - EventFlags::OUT } else { flags };
        epoll::modify(epoll, socket.as_fd(), EventData::new_u64(0), flags).ok();
    }

    /// Gives up bytes that have not arrived. A drop then waits a second for them at most.
    pub(super) fn withdraw(&mut self) {
        if let Some(links) = &mut self.links {
            links.withdraw();
        }
    }

    /// Ends the way. Bytes that have not left are lost, and nothing makes `epoll` readable from now
    /// on. A thread closes the link, because the aggregator may be late.
    pub(super) fn close(&mut self, epoll: &OwnedFd) {
        self.withdraw();
        // A closed descriptor that a forked process holds too would stay in `epoll`.
        if let Some(links) = self.links.take() {
            epoll::delete(epoll, links.wake_fd()).ok();
            let thread = Builder::new().name("ringfold-net".into());
            // Without a thread this call closes the link.
            thread.spawn(move || drop(links)).ok();
        }
        if let Some(socket) = self.socket.take() {
            epoll::delete(epoll, &socket).ok();
            // Fails only if the connection has ended.
            shutdown(&socket, Shutdown::Both).ok();
        }
    }
}

/// The error of a connection that broke.
pub(super) fn ended(errno: Errno) -> OffloadError {
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => OffloadError::Closed,
        errno => OffloadError::Io(errno.into()),
    }
}

/// The error of a link that broke.
fn broken(error: LinkError) -> OffloadError {
    match error.fault {
        LinkFault::Closed | LinkFault::Died => OffloadError::Closed,
        LinkFault::Unproven => OffloadError::Unproven,
        LinkFault::Protocol(what) => OffloadError::Protocol(what),
        LinkFault::Unreachable(error) | LinkFault::Io(error) => OffloadError::Io(error),
    }
}
