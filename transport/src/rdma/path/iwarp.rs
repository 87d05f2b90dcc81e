//! What a path over iWARP needs more than others: a connection, which the higher rank makes to the
//! port that the lower one told, and a watch for silence.
//!
//! Devices there say that work is done when TCP has it, not when it has arrived, and TCP tries for
//! a quarter of an hour before it gives up. So a question (`Qp::ask`) proves the connection, is the
//! last word of a rank that leaves, and is asked from time to time while something is under way. If
//! no answer comes for as long as other devices would try, the path is lost. By the protocol the
//! end that connects says the first word: the other end asks nothing before it was told `Ready`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::rdma::sys::{Connection, Connector, Ticket};

/// Questions within the time after which silence counts as loss.
const QUESTIONS: u32 = 8;

/// The connection of a path, made by this end if it *calls* and by the peer if not.
#[derive(Debug, Default)]
pub(super) struct Dialer {
    calls: bool,
    connection: Option<Arc<Connection>>,
    /// An attempt to connect, beside the calls and maybe for longer than a life.
    dial: Option<JoinHandle<io::Result<()>>>,
}

impl Dialer {
    /// Begins another life, in which this end connects to the other or not.
    pub(super) fn begin(&mut self, calls: bool) {
        (self.calls, self.connection) = (calls, None);
    }

    /// Whether this end connects.
    pub(super) const fn calls(&self) -> bool {
        self.calls
    }

    /// Whether an attempt to connect is under way, maybe that of a life before: it holds a thread
    /// for as long as TCP tries.
    pub(super) fn is_dialing(&self) -> bool {
        self.dial.as_ref().is_some_and(|dial| !dial.is_finished())
    }

    /// Gives the connection away, to be destroyed after its queue pair.
    pub(super) const fn take(&mut self) -> Option<Arc<Connection>> {
        self.connection.take()
    }

    /// Begins to look for the way to a peer. What happens to the connection is told under `tag`.
    pub(super) fn find(
        &mut self,
        connector: &Connector,
        to: SocketAddr,
        tag: u64,
    ) -> io::Result<()> {
        self.connection = Some(Arc::new(connector.find(to, tag)?));
        Ok(())
    }

    /// The way to the peer is known: connects a queue pair, beside the calls.
    pub(super) fn dial(&mut self, number: u32, ticket: Ticket) -> io::Result<()> {
        let Some(connection) = self.connection.clone() else { return Ok(()) };
        let dial = thread::Builder::new().name("ringfold-rdma".to_owned());
        self.dial = Some(dial.spawn(move || connection.connect(number, &ticket))?);
        Ok(())
    }

    /// Why there is no connection, once it has taken too long.
    pub(super) fn why_none(&mut self) -> io::Error {
        let dial = self.dial.take_if(|dial| dial.is_finished());
        match dial.and_then(|dial| dial.join().ok()) {
            Some(Err(error)) => error,
            _ => io::ErrorKind::TimedOut.into(),
        }
    }

    /// Whether the peer's connection is awaited.
    pub(super) const fn is_waiting(&self) -> bool {
        self.connection.is_none() && !self.calls
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

/// A watch for silence: asks the peer's device from time to time, one question at a time.
#[derive(Debug)]
pub(super) struct Watch {
    /// How long the peer's device may not answer.
    silence: Duration,
    /// When the question was asked that is not answered.
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

    /// When to ask, or to call it silence; never if nothing is asked and all `is_answered`.
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
    fn silence_is_what_is_not_answered_in_time() {
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
