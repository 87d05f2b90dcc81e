//! A pair of rails, one of either end.

use ringfold_types::Rank;

use crate::rdma::card::RailCard;
use crate::rdma::diagnostics;
use crate::rdma::path_label::PathLabel;

/// A pair of rails. It is usable as long as our device can access the memory for it.
#[derive(Debug)]
pub(super) struct Cable {
    rail: usize,
    is_usable: bool,
    is_spare: bool,
    theirs: RailCard,
    /// The label of our end.
    name: String,
    /// The label of the peer's end, once the peer has told it.
    path_label: PathLabel,
}

impl Cable {
    /// Makes a cable from our `rail`, whose label is `name`, to the peer's. A spare cable carries
    /// data only while no other does.
    pub(super) fn new(
        rail: usize,
        name: String,
        is_usable: bool,
        theirs: RailCard,
        is_spare: bool,
    ) -> Self {
        Self { rail, is_usable, is_spare, theirs, name, path_label: PathLabel::default() }
    }

    pub(super) const fn rail(&self) -> usize {
        self.rail
    }

    pub(super) const fn is_usable(&self) -> bool {
        self.is_usable
    }

    pub(super) const fn is_spare(&self) -> bool {
        self.is_spare
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name of the peer's port, once the peer has told it.
    pub(super) fn their_port(&self) -> &str {
        &self.path_label.port
    }

    /// The description of the peer's end, for people.
    pub(super) fn their_name(&self, peer: Rank) -> String {
        diagnostics::peer(peer, &self.path_label.host, &self.path_label.port, self.theirs.gid)
    }

    /// Takes the peer's present description of its end. Returns whether it is a rail of the same
    /// kind.
    pub(super) fn renew(&mut self, theirs: RailCard, path_label: PathLabel) -> bool {
        let is_alike = theirs.kind == self.theirs.kind;
        if is_alike {
            (self.theirs, self.path_label) = (theirs, path_label);
        }
        is_alike
    }

    /// Gives up the cable, because our device cannot access the memory for it.
    pub(super) const fn give_up(&mut self) {
        self.is_usable = false;
    }
}
