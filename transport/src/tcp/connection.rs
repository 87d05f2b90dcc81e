//! One link: its connection from the first attempt to the end, and the bytes that wait in either
//! direction.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use ringfold_types::Rank;
use rustix::event::epoll::EventFlags;
use rustix::net::{Shutdown, shutdown};

use super::broken::Broken;
use super::dial::{Dial, Dialer};
use super::reader::Reader;
use super::route::Route;
use super::socket::{Read, has_ended, read, route};
use super::writer::Writer;
use crate::contract::{Fragment, Link, Received};
use crate::sys::outgoing;

/// One link's connection.
#[derive(Debug)]
pub(super) struct Connection {
    state: State,
    /// The reason why no more bytes can be sent. Bytes that arrived before can still be read.
    closed: Option<Broken>,
    reader: Reader,
    writer: Writer,
}

#[derive(Debug)]
enum State {
    Dialing(Dial),
    Open(OwnedFd),
    /// The connection never opened, and will not.
    Failed(Broken),
}

impl Connection {
    /// Makes a link that this end, rank `me`, opens.
    pub(super) fn dialing(me: Rank, link: Link, routes: VecDeque<Route>) -> Self {
        Self::at(State::Dialing(Dial::new(me, link, routes)))
    }

    /// Makes a link that the peer opened.
    pub(super) fn accepted(socket: OwnedFd) -> Self {
        let mut it = Self::at(State::Open(socket));
        it.reader.open();
        it
    }

    fn at(state: State) -> Self {
        Self { state, closed: None, reader: Reader::default(), writer: Writer::default() }
    }

    /// Whether rank `me` should use an authenticated connection of rank `from` for this link.
    ///
    /// Both ends may open the link at the same time. An end that has not sent its proof yet gives
    /// up its own attempt. If both ends have sent their proofs, the lower rank's attempt stays: the
    /// lower rank refuses the other's attempt, and the higher rank accepts.
    pub(super) const fn yields(&self, me: Rank, from: Rank) -> bool {
        match &self.state {
            State::Dialing(dial) => !dial.may_be_welcome() || from.0 < me.0,
            State::Open(_) | State::Failed(_) => false,
        }
    }

    /// Uses the peer's connection instead of this end's own attempt.
    pub(super) fn adopt(&mut self, socket: OwnedFd) {
        self.state = State::Open(socket);
        self.reader.open();
        self.flush();
    }

    /// Whether accepted bytes wait here for later calls.
    pub(super) const fn is_unsent(&self) -> bool {
        self.writer.is_unsent()
    }

    /// Whether `advance` must be called as time passes, even without events.
    pub(super) const fn is_timed(&self) -> bool {
        match &self.state {
            State::Dialing(dial) => dial.is_timed(),
            State::Open(_) | State::Failed(_) => false,
        }
    }

    /// The reason why the link has ended, if it has.
    pub(super) const fn broken(&self) -> Option<Broken> {
        match self.state {
            State::Failed(broken) => Some(broken),
            _ => self.closed,
        }
    }

    /// The reading half and its socket, if the connection is open.
    pub(super) const fn reader(&mut self) -> Option<(&mut Reader, &OwnedFd)> {
        match &self.state {
            State::Open(socket) => Some((&mut self.reader, socket)),
            State::Dialing(_) | State::Failed(_) => None,
        }
    }

    /// The socket, if the connection is open.
    pub(super) const fn socket(&self) -> Option<&OwnedFd> {
        match &self.state {
            State::Open(socket) => Some(socket),
            State::Dialing(_) | State::Failed(_) => None,
        }
    }

    /// The addresses of both ends, if the connection is open.
    pub(super) fn route(&self) -> Option<Route> {
        self.socket().and_then(route)
    }

    /// Whether the kernel may have unread bytes.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Open(_)) && self.reader.is_ready()
    }

    /// See `Transport::send`.
    pub(super) fn send(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        if let Some(broken) = self.broken() {
            return Err(broken);
        }
        let State::Open(socket) = &self.state else { return Ok(self.writer.hold(tag, bytes)) };
        self.writer.send(socket, tag, bytes).map_err(|errno| self.close(errno.into()))
    }

    /// See `Transport::send_ahead`.
    pub(super) fn send_ahead(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        self.broken().map_or_else(|| Ok(self.writer.hold(tag, bytes)), Err)
    }

    /// See `Transport::readable`.
    pub(super) fn readable(&self) -> Result<Option<Fragment<'_>>, Broken> {
        match self.state {
            State::Open(_) => self.reader.readable(),
            State::Failed(broken) => Err(broken),
            State::Dialing(_) => Ok(None),
        }
    }

    /// See `Transport::consume`.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }

    /// See `Transport::recv`.
    pub(super) fn recv(&mut self, tag: u32, dst: &mut [u8]) -> Result<Option<Received>, Broken> {
        match &self.state {
            State::Open(socket) => {
                let result = self.reader.recv(socket, tag, dst);
                self.handle_end();
                result
            }
            State::Failed(broken) => Err(*broken),
            State::Dialing(_) => Ok(None),
        }
    }

    /// Reads arrived bytes if there is room and the receiver reads in place, or if `anyway`.
    /// Returns whether anything changed.
    pub(super) fn fill(&mut self, anyway: bool) -> bool {
        let State::Open(socket) = &self.state else { return false };
        let changed = (anyway || self.reader.lends()) && self.reader.fill(socket);
        self.handle_end();
        changed
    }

    /// Handles an event on the connection.
    pub(super) fn notice(&mut self, dialer: Dialer<'_>, flags: EventFlags) {
        if let State::Open(socket) = &self.state {
            let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            // The event may belong to an attempt that was given up.
            let ending = flags.intersects(ends) && has_ended(socket);
            if ending || flags.contains(EventFlags::IN) {
                self.reader.notice(ending);
            }
            self.writer.writable |= flags.contains(EventFlags::OUT);
            if ending {
                // Ranks close both directions at once.
                self.close(Broken::Closed);
            }
        }
        self.advance(dialer);
    }

    /// Takes all steps that are possible now towards an open link with no held bytes.
    pub(super) fn advance(&mut self, dialer: Dialer<'_>) {
        if let State::Dialing(dial) = &mut self.state {
            match dial.advance(dialer) {
                Ok(None) => return,
                Ok(Some(socket)) => {
                    self.state = State::Open(socket);
                    self.reader.open();
                }
                Err(broken) => {
                    self.writer.forget();
                    self.state = State::Failed(broken);
                }
            }
        }
        self.flush();
    }

    /// Ends the link on this side. Returns whether a close now would lose no sent bytes. A kernel
    /// drops unacknowledged bytes if data arrives for a closed connection, or if a connection is
    /// closed with unread data. So this discards arriving bytes, and must be called until it
    /// returns true.
    pub(super) fn hang_up(&self) -> bool {
        let State::Open(socket) = &self.state else { return true };
        // The shutdown of a broken connection fails every time.
        if shutdown(socket, Shutdown::Write).is_err() {
            return true;
        }
        let mut dropped = [0; 16 * 1024];
        for _ in 0..256 {
            if !matches!(read(socket, &mut dropped), Ok(Read::Bytes(_))) {
                break;
            }
        }
        // The end of the stream counts as one byte and may stay unacknowledged. On an error there
        // is nothing to wait for.
        outgoing(socket).map_or(true, |bytes| bytes <= 1)
    }

    fn flush(&mut self) {
        let State::Open(socket) = &self.state else { return };
        if self.closed.is_none()
            && let Err(errno) = self.writer.flush(socket)
        {
            self.close(errno.into());
        }
    }

    /// Closes the link if the stream has ended or become invalid.
    fn handle_end(&mut self) {
        let Some(end) = self.reader.end().filter(|_| self.closed.is_none()) else { return };
        self.close(end);
        if let (Broken::Protocol(_), State::Open(socket)) = (end, &self.state) {
            shutdown(socket, Shutdown::Both).ok();
        }
    }

    fn close(&mut self, broken: Broken) -> Broken {
        self.writer.forget();
        *self.closed.get_or_insert(broken)
    }
}
