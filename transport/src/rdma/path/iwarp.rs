//! The additions for iWARP: a connection, which the higher rank makes to the lower rank's port, and
//! a watch for silence.
//!
//! An iWARP device completes work when TCP has taken it, not when it has arrived. TCP tries for a
//! quarter of an hour before it gives up. So paths ask questions (`Qp::ask`), which the peer's
//! device answers. A question proves the connection, ends the stream of a rank that leaves, and is
//! repeated while something is under way. A path without an answer for as long as other devices
//! would retry is lost. By the protocol the connecting end sends first, so the other end asks
//! nothing before it has received `Ready`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::rdma::sys::{Connection, Connector, Ticket};

/// Questions within the time after which silence counts as loss.
const QUESTIONS: u32 = 8;

/// The connection of a path. This end makes it if it *initiates* it, and the peer otherwise.
#[derive(Debug, Default)]
pub(super) struct Dialer {
    initiates: bool,
    connection: Option<Arc<Connection>>,
    /// An attempt to connect in a thread of its own, which may outlast a life.
    dial: Option<JoinHandle<io::Result<()>>>,
}

impl Dialer {
    /// Begins another life. `initiates` tells whether this end connects to the other.
    pub(super) fn begin(&mut self, initiates: bool) {
        (self.initiates, self.connection) = (initiates, None);
    }

    /// Returns whether this end connects.
    pub(super) const fn initiates(&self) -> bool {
        self.initiates
    }

    /// Returns whether an attempt to connect is under way, maybe that of an earlier life. It holds
    /// a thread for as long as TCP tries.
    pub(super) fn is_dialing(&self) -> bool {
        self.dial.as_ref().is_some_and(|dial| !dial.is_finished())
    }

    /// Gives the connection away, for destruction after its queue pair.
    pub(super) const fn take(&mut self) -> Option<Arc<Connection>> {
        self.connection.take()
    }

    /// Begins to resolve the route to a peer. Events of the connection carry `tag`.
    pub(super) fn resolve(
        &mut self,
        connector: &Connector,
        to: SocketAddr,
        tag: u64,
    ) -> io::Result<()> {
        self.connection = Some(Arc::new(connector.resolve(to, tag)?));
        Ok(())
    }

    /// Connects a queue pair in a thread of its own, once the route is resolved.
    pub(super) fn dial(&mut self, number: u32, ticket: Ticket) -> io::Result<()> {
        let Some(connection) = self.connection.clone() else { return Ok(()) };
        let dial = thread::Builder::new().name("ringfold-rdma".to_owned());
        self.dial = Some(dial.spawn(move || connection.connect(number, &ticket))?);
        Ok(())
    }

    /// Returns the error of a connection that has taken too long.
    pub(super) fn why_none(&mut self) -> io::Error {
        let dial = self.dial.take_if(|dial| dial.is_finished());
        match dial.and_then(|dial| dial.join().ok()) {
            Some(Err(error)) => error,
            _ => io::ErrorKind::TimedOut.into(),
        }
    }

    /// Returns whether the peer is expected to connect.
    pub(super) const fn is_waiting(&self) -> bool {
        self.connection.is_none() && !self.initiates
    }

    /// Takes the peer's connection for a queue pair.
    pub(super) fn accept(
        &mut self,
        connection: Connection,
        number: u32,
        tag: u64,
    ) -> io::Result<()> {
        let accepted = connection.accept(number, tag);
        self.connection = Some(Arc::new(connection));
        accepted
    }
}

/// A watch for silence. It asks the peer's device from time to time, one question at a time.
#[derive(Debug)]
pub(super) struct Watch {
    /// The time after which a missing answer counts as loss.
    silence: Duration,
    /// The time of the question that is not yet answered.
    asking: Option<Instant>,
    answered_at: Instant,
}

impl Watch {
    pub(super) const fn new(silence: Duration, now: Instant) -> Self {
        Self { silence, asking: None, answered_at: now }
    }

    pub(super) const fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    pub(super) const fn asked(&mut self, now: Instant) {
        self.asking = Some(now);
    }

    pub(super) const fn answered(&mut self, now: Instant) {
        (self.asking, self.answered_at) = (None, now);
    }

    pub(super) const fn silence(&self) -> Duration {
        self.silence
    }

    /// The time of the next question, or the time when silence counts as loss. There is none if no
    /// question is open and all `is_answered`.
    pub(super) fn deadline(&self, is_answered: bool) -> Option<Instant> {
        match self.asking {
            Some(since) => Some(since + self.silence),
            None if is_answered => None,
            None => Some(self.answered_at + self.silence / QUESTIONS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_a_late_answer() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut watch = Watch::new(8 * second, now);
        assert_eq!(watch.deadline(true), None, "nothing is under way");
        assert_eq!(watch.deadline(false), Some(now + second));
        watch.asked(now + second);
        for is_answered in [false, true] {
            assert_eq!(watch.deadline(is_answered), Some(now + 9 * second));
        }
        watch.answered(now + 2 * second);
        assert!(!watch.is_asking());
        assert_eq!(watch.deadline(false), Some(now + 3 * second));
    }
}
