//! What a path over iWARP needs more than others: a connection, which the higher rank makes to the
//! port that the lower one told, and an ear for silence.
//!
//! Devices there say that work is done when TCP has it, not when it has arrived, and TCP tries for
//! a quarter of an hour before it gives up. So a question (`Qp::ask`) proves the connection, is the
//! last word of who leaves, and is asked from time to time where something is under way; where no
//! answer comes for as long as other devices would try, the path is lost. Who connects says the
//! first word, as the protocol has it: the other end asks nothing before it was told `Ready`.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Path, Stage};
use crate::rdma::message::RailCard;
use crate::rdma::rail::Rail;
use crate::rdma::sys::{Connection, Qp, Target, Ticket};

/// Questions within the time after which silence counts as loss.
const QUESTIONS: u32 = 8;

impl Path {
    pub(in crate::rdma) fn is_iwarp(&self) -> bool {
        self.qp.as_ref().is_some_and(Qp::is_iwarp)
    }

    /// Waits for the peer's connection, or begins to make it.
    pub(super) fn meet(
        &mut self,
        rail: &Rail,
        theirs: &RailCard,
        target: &Target,
    ) -> io::Result<()> {
        if self.stage == Stage::Offered {
            (self.stage, self.since) = (Stage::Connecting, Instant::now());
        }
        if self.calls {
            let connector = rail.connector.as_ref().ok_or(io::ErrorKind::Unsupported)?;
            let port = u16::try_from(target.number).map_err(io::Error::other)?;
            let to = SocketAddr::new(Ipv6Addr::from(theirs.gid).to_canonical(), port);
            self.connection = Some(Arc::new(connector.find(to, self.id.encode(None))?));
        }
        Ok(())
    }

    /// Whether it is to be connected.
    pub(in crate::rdma) const fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Offered | Stage::Connecting)
    }

    /// Whether others on its rail were connected in the meantime, of which there may be many more
    /// than a busy machine makes in that time: then it has as long again, from the last one on.
    pub(in crate::rdma) fn may_yet_come(&mut self, last: Instant) -> bool {
        let is_later = last > self.since;
        self.since = self.since.max(last);
        is_later
    }

    /// The way to the peer is known: connects, beside the calls.
    pub(in crate::rdma) fn found(&mut self) -> io::Result<()> {
        let (Some(connection), Stage::Connecting) = (&self.connection, self.stage) else {
            return Ok(());
        };
        let (connection, target) = (Arc::clone(connection), self.theirs.unwrap_or_default());
        let number = self.qp()?.number();
        let dial = thread::Builder::new().name("ringfold-rdma".to_owned());
        self.dial = Some(dial.spawn(move || connection.connect(number, &target.ticket))?);
        Ok(())
    }

    /// Whether an attempt to connect is under way, be it that of a life before: it holds a thread
    /// for as long as TCP tries.
    pub(super) fn is_dialing(&self) -> bool {
        self.dial.as_ref().is_some_and(|dial| !dial.is_finished())
    }

    /// Why there is no connection, once it has taken too long.
    pub(in crate::rdma) fn why_none(&mut self) -> io::Error {
        let dial = self.dial.take_if(|dial| dial.is_finished());
        match dial.and_then(|dial| dial.join().ok()) {
            Some(Err(error)) => error,
            _ => io::ErrorKind::TimedOut.into(),
        }
    }

    /// Takes the connection of a peer that shows the ticket we gave it, or gives it back.
    pub(in crate::rdma) fn admit(
        &mut self,
        connection: Connection,
        ticket: &Ticket,
    ) -> Result<io::Result<()>, Connection> {
        let is_expected = self.is_connecting();
        let is_new = self.connection.is_none() && !self.calls;
        match &self.qp {
            Some(qp) if is_expected && is_new && *ticket == self.ticket => {
                self.is_exposed = true;
                let accepted = connection.accept(qp.number(), self.id.encode(None));
                self.connection = Some(Arc::new(connection));
                Ok(accepted)
            }
            _ => Err(connection),
        }
    }

    /// The connection is there.
    pub(in crate::rdma) fn made(&mut self) -> io::Result<()> {
        (self.is_connected, self.is_exposed) = (true, true);
        // The other end has accepted it.
        self.is_ready |= self.calls;
        self.prove()
    }

    /// Whether the peer is to be told when the path is proven, so that it tries too.
    pub(in crate::rdma) const fn calls(&self) -> bool {
        self.calls
    }

    /// When to listen for silence.
    pub(super) fn watch_at(&self) -> Option<Instant> {
        match self.asking {
            _ if !self.is_iwarp() => None,
            Some(since) => Some(since + self.silence),
            None if self.answered == self.posted => None,
            None => Some(self.answered_at + self.silence / QUESTIONS),
        }
    }

    /// Asks whether the peer's device is there; or says how long it has not answered.
    pub(in crate::rdma) fn watch(&mut self) -> Result<io::Result<()>, Duration> {
        match self.asking {
            Some(_) => Err(self.silence),
            None => Ok(self.question()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::Rank;

    use super::*;

    #[test]
    fn who_waits_behind_others_has_longer() {
        let mut path = Path::new(Rank(1), 0, 0);
        let second = Duration::from_secs(1);
        assert!(!path.may_yet_come(path.since - second));
        let last = path.since + second;
        assert!(path.may_yet_come(last) && path.since == last);
        assert!(!path.may_yet_come(last), "nobody came after that one");
    }
}
