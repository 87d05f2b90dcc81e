//! One link: a connection, from the first attempt to its end, and what either direction waits for.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use ringfold_types::Rank;
use rustix::event::epoll::EventFlags;
use rustix::net::{Shutdown, shutdown};

use super::broken::Broken;
use super::dial::{Dial, Dialer};
use super::reader::Reader;
use super::route::Route;
use super::socket::{Read, has_ended, read};
use super::writer::Writer;
use crate::contract::{Fragment, Link, Received};
use crate::sys::outgoing;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Connection {
    stage: Stage,
    /// Why nothing can be sent any more. What arrived before can still be read.
    closed: Option<Broken>,
    reader: Reader,
    writer: Writer,
}

#[derive(Debug)]
enum Stage {
    Dialing(Dial),
    Open(OwnedFd),
    /// Never was open, and will not be.
    Failed(Broken),
}

impl Connection {
    /// A link that this end, rank `me`, opens.
    pub(super) fn dialing(me: Rank, link: Link, routes: VecDeque<Route>) -> Self {
        Self::at(Stage::Dialing(Dial::new(me, link, routes)))
    }

    /// A link that the peer opened.
    pub(super) fn accepted(socket: OwnedFd) -> Self {
        let mut it = Self::at(Stage::Open(socket));
        it.reader.open();
        it
    }

    fn at(stage: Stage) -> Self {
        Self { stage, closed: None, reader: Reader::default(), writer: Writer::default() }
    }

    /// Whether a connection that `from` opened, and proved, should carry this link, of rank `me`.
    ///
    /// Both ends may open the link at the same time. Until its proof has left, an end gives its own
    /// attempt up for the other's. If both proofs have left, the lower rank's attempt goes on: it
    /// refuses the other's, and the higher rank takes it.
    pub(super) const fn yields(&self, me: Rank, from: Rank) -> bool {
        match &self.stage {
            Stage::Dialing(dial) => !dial.may_be_welcome() || from.0 < me.0,
            Stage::Open(_) | Stage::Failed(_) => false,
        }
    }

    /// Takes the peer's connection instead of the own attempt.
    pub(super) fn adopt(&mut self, socket: OwnedFd) {
        self.stage = Stage::Open(socket);
        self.reader.open();
        self.flush();
    }

    /// Whether bytes wait here that only later calls bring on their way.
    pub(super) const fn is_unsent(&self) -> bool {
        self.writer.is_unsent()
    }

    /// Whether `advance` must be called as time passes, events or not.
    pub(super) const fn is_timed(&self) -> bool {
        match &self.stage {
            Stage::Dialing(dial) => dial.is_timed(),
            Stage::Open(_) | Stage::Failed(_) => false,
        }
    }

    /// What ended the link, if it has.
    pub(super) const fn broken(&self) -> Option<Broken> {
        match self.stage {
            Stage::Failed(broken) => Some(broken),
            _ => self.closed,
        }
    }

    /// The reading half, where there is a connection to read from.
    pub(super) const fn reader(&mut self) -> Option<(&mut Reader, &OwnedFd)> {
        match &self.stage {
            Stage::Open(socket) => Some((&mut self.reader, socket)),
            Stage::Dialing(_) | Stage::Failed(_) => None,
        }
    }

    /// Whether the kernel may have bytes that were not read.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Open(_)) && self.reader.is_ready()
    }

    /// As `Transport::send`.
    pub(super) fn send(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        if let Some(broken) = self.broken() {
            return Err(broken);
        }
        let Stage::Open(socket) = &self.stage else { return Ok(self.writer.hold(tag, bytes)) };
        self.writer.send(socket, tag, bytes).map_err(|errno| self.close(errno.into()))
    }

    /// As `Transport::readable`.
    pub(super) fn readable(&self) -> Result<Option<Fragment<'_>>, Broken> {
        match self.stage {
            Stage::Open(_) => self.reader.readable(),
            Stage::Failed(broken) => Err(broken),
            Stage::Dialing(_) => Ok(None),
        }
    }

    /// As `Transport::consume`.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }

    /// As `Transport::recv`.
    pub(super) fn recv(&mut self, tag: u32, dst: &mut [u8]) -> Result<Option<Received>, Broken> {
        match &self.stage {
            Stage::Open(socket) => {
                let result = self.reader.recv(socket, tag, dst);
                self.heed_end();
                result
            }
            Stage::Failed(broken) => Err(*broken),
            Stage::Dialing(_) => Ok(None),
        }
    }

    /// Reads what has arrived, if there is room and the receiver wants to see it where it lies, or
    /// `anyway`. Returns whether anything changed.
    pub(super) fn fill(&mut self, anyway: bool) -> bool {
        let Stage::Open(socket) = &self.stage else { return false };
        let changed = (anyway || self.reader.lends()) && self.reader.fill(socket);
        self.heed_end();
        changed
    }

    /// Heeds an event on the connection.
    pub(super) fn notice(&mut self, dialer: Dialer<'_>, flags: EventFlags) {
        if let Stage::Open(socket) = &self.stage {
            let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            // The event may be that of an attempt which was given up.
            let ending = flags.intersects(ends) && has_ended(socket);
            if ending || flags.contains(EventFlags::IN) {
                self.reader.notice(ending);
            }
            self.writer.writable |= flags.contains(EventFlags::OUT);
            if ending {
                // Ranks end both directions at once.
                self.close(Broken::Closed);
            }
        }
        self.advance(dialer);
    }

    /// Takes the steps that are possible now towards an open link with nothing held.
    pub(super) fn advance(&mut self, dialer: Dialer<'_>) {
        if let Stage::Dialing(dial) = &mut self.stage {
            match dial.advance(dialer) {
                Ok(None) => return,
                Ok(Some(socket)) => {
                    self.stage = Stage::Open(socket);
                    self.reader.open();
                }
                Err(broken) => {
                    self.writer.forget();
                    self.stage = Stage::Failed(broken);
                }
            }
        }
        self.flush();
    }

    /// Ends the link on this side. Whether closing it takes nothing back of what was sent: a kernel
    /// that gets bytes for a closed connection, or closes one with bytes that nobody read, forgets
    /// what the peer's kernel has not taken yet. So this drops what comes, and must be called until
    /// then.
    pub(super) fn hang_up(&self) -> bool {
        let Stage::Open(socket) = &self.stage else { return true };
        // Broken ones cannot be shut down, however often.
        if shutdown(socket, Shutdown::Write).is_err() {
            return true;
        }
        let mut dropped = [0; 16 * 1024];
        for _ in 0..256 {
            if !matches!(read(socket, &mut dropped), Ok(Read::Bytes(_))) {
                break;
            }
        }
        // The end itself may stay unanswered; and who cannot be told need not wait.
        outgoing(socket).map_or(true, |bytes| bytes <= 1)
    }

    fn flush(&mut self) {
        let Stage::Open(socket) = &self.stage else { return };
        if self.closed.is_none()
            && let Err(errno) = self.writer.flush(socket)
        {
            self.close(errno.into());
        }
    }

    /// A stream that ended, or makes no sense any more, ends the other direction too.
    fn heed_end(&mut self) {
        let Some(end) = self.reader.end().filter(|_| self.closed.is_none()) else { return };
        self.close(end);
        if let (Broken::Protocol(_), Stage::Open(socket)) = (end, &self.stage) {
            shutdown(socket, Shutdown::Both).ok();
        }
    }

    fn close(&mut self, broken: Broken) -> Broken {
        self.writer.forget();
        *self.closed.get_or_insert(broken)
    }
}
