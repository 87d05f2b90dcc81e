//! A peer, the talk with it, and how it was when the endpoint last counted.

use ringfold_types::Rank;

use super::Rdma;
use crate::rdma::peer::Peer;
use crate::rdma::talk::Talk;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Contact {
    pub(super) peer: Peer,
    pub(super) talk: Talk,
    /// As it was when last counted.
    pub(super) was_settled: bool,
    pub(super) was_by_tcp: bool,
    pub(super) was_lost: bool,
}

impl Contact {
    pub(super) fn new(rank: Rank, lanes: usize, may_use_tcp: bool) -> Self {
        let peer = Peer::new(rank, lanes, may_use_tcp);
        let talk = Talk::default();
        Self { peer, talk, was_settled: true, was_by_tcp: false, was_lost: false }
    }

    /// Whether all is said and answered.
    pub(super) fn is_settled(&self) -> bool {
        self.peer.is_settled() && self.is_said()
    }

    /// Whether the connection has taken all that there was to say, or nobody listens any more.
    pub(super) fn is_said(&self) -> bool {
        self.talk.is_said() || self.peer.fault().is_some()
    }

    /// Whether bytes are held back, or credit is owed.
    pub(super) fn is_busy(&self) -> bool {
        !self.peer.is_flushed() || self.peer.owes() || !self.is_said()
    }
}

impl Rdma {
    /// Whether some peer may be writing to pages.
    pub(super) fn is_inviting(&self) -> bool {
        self.contacts.iter().flatten().any(|contact| contact.peer.is_inviting())
    }

    /// The rail by which the next fragment goes to some peer.
    #[cfg(test)]
    pub(in crate::rdma) fn rail(&self) -> Option<usize> {
        self.contacts.iter().flatten().find_map(|contact| contact.peer.rail())
    }

    /// Whether some path by a rail carries data.
    #[cfg(test)]
    pub(in crate::rdma) fn carries(&self, rail: usize) -> bool {
        self.contacts.iter().flatten().any(|contact| contact.peer.carries(rail))
    }
}
