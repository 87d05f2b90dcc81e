//! The TCP connections. They carry messages about queue pairs and memory, and data where there is
//! no rail.

use std::cell::Cell;

use ringfold_types::Rank;

use super::contacts::Contact;
use crate::contract::{LinkError, Transport as _};
use crate::proof::JobKey;
use crate::rdma::control_stream::Parties;
use crate::rdma::message::Message;
use crate::rdma::peer::Fault;
use crate::tcp::Tcp;

/// The TCP connections, and whether they are worth a poll.
#[derive(Debug)]
pub(super) struct Control {
    tcp: Tcp,
    key: JobKey,
    rank: Rank,
    /// Something may have happened on a connection.
    is_pending: bool,
    /// TCP was asked to wake the caller.
    is_armed: bool,
    /// The caller wants what TCP may bring.
    is_wanted: Cell<bool>,
}

impl Control {
    pub(super) fn new(mut tcp: Tcp, key: [u8; 32], rank: Rank) -> Self {
        tcp.watch();
        Self {
            tcp,
            key: JobKey::new(key),
            rank,
            is_pending: false,
            is_armed: false,
            is_wanted: Cell::new(false),
        }
    }

    /// The TCP endpoint, for data.
    pub(super) const fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    pub(super) const fn tcp_mut(&mut self) -> &mut Tcp {
        &mut self.tcp
    }

    /// Sends the queued messages of a peer, as far as the connection takes them.
    pub(super) fn send(&mut self, peer: Rank, contact: &mut Contact) {
        let parties = Parties { key: &self.key, own: self.rank, peer };
        contact.stream.send(&mut self.tcp, &mut contact.peer, parties);
    }

    /// Returns the next message of a peer, if it has arrived.
    pub(super) fn receive(
        &mut self,
        peer: Rank,
        contact: &mut Contact,
    ) -> Result<Option<Message>, Fault> {
        let parties = Parties { key: &self.key, own: self.rank, peer };
        contact.stream.receive(&mut self.tcp, &mut contact.peer, parties)
    }

    /// Polls the connections. Returns whether anything happened.
    pub(super) fn poll(&mut self) -> Result<bool, LinkError> {
        self.is_pending = false;
        self.is_wanted.set(false);
        self.tcp.poll()
    }

    /// Marks that something may have happened on a connection.
    pub(super) const fn mark_pending(&mut self) {
        self.is_pending = true;
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Marks that the caller has found nothing, or no room, where TCP may soon bring some.
    pub(super) fn want(&self) {
        self.is_wanted.set(true);
    }

    pub(super) const fn is_wanted(&self) -> bool {
        self.is_wanted.get()
    }

    /// Lets TCP wake the caller.
    pub(super) fn arm(&mut self) {
        self.tcp.arm();
        (self.is_armed, self.is_pending) = (true, true);
    }

    pub(super) const fn is_armed(&self) -> bool {
        self.is_armed
    }

    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
        self.tcp.disarm();
    }
}
