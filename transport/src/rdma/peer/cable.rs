//! A pair of rails, one of either end.

use std::sync::Arc;

use ringfold_types::Rank;

use crate::rdma::budget::Budget;
use crate::rdma::card::RailCard;
use crate::rdma::diagnostics;
use crate::rdma::path_label::PathLabel;
use crate::rdma::registry::Registry;
use crate::rdma::sys::Pd;

/// A pair of rails, and the protection domain by which our device accesses memory. A cable without
/// a domain cannot be used.
#[derive(Debug)]
pub(super) struct Cable {
    rail: usize,
    pd: Option<Arc<Pd>>,
    is_spare: bool,
    is_stuck: bool,
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
        pd: Option<Arc<Pd>>,
        theirs: RailCard,
        is_spare: bool,
    ) -> Self {
        Self { rail, pd, is_spare, is_stuck: false, theirs, name, path_label: PathLabel::default() }
    }

    pub(super) const fn rail(&self) -> usize {
        self.rail
    }

    pub(super) const fn pd(&self) -> Option<&Arc<Pd>> {
        self.pd.as_ref()
    }

    pub(super) const fn is_spare(&self) -> bool {
        self.is_spare
    }

    /// Returns whether the device has refused to let go of callers' memory.
    pub(super) const fn is_stuck(&self) -> bool {
        self.is_stuck
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

    /// Lets go of the device. It accesses no caller's memory through this cable any more, unless it
    /// is stuck.
    pub(super) fn disown(&mut self, registry: &mut Registry, budget: &mut Budget) {
        self.recall(registry, budget);
        self.pd = None;
    }

    /// Takes callers' memory back from the device, as far as the device lets go of it.
    pub(super) fn recall(&mut self, registry: &mut Registry, budget: &mut Budget) {
        if let Some(pd) = &self.pd
            && let Err(error) = registry.forget(pd, budget)
        {
            tracing::warn!("rdma: {} does not let go of memory: {error}; see `dmesg`", self.name);
            self.is_stuck = true;
        }
    }
}
