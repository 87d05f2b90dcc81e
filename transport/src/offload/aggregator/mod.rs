//! The provider whose groups are links to ringfold's aggregators.
//!
//! Member 0 asks the aggregators' control port for the group, and its ticket tells the others where
//! they connect. Each member has one link, to the aggregator whose child it is. A chunk leaves at
//! once as far as its link takes it; the group keeps a copy of the rest.

mod group;

use std::sync::Arc;

use ringfold_types::{Collective, limits};

use super::contract::{Device, Group, Properties, Provider, Reduction};
use super::devices::RdmaDevices;
use super::error::OffloadError;
use super::ticket::Grant;
pub use group::{AggregatorGroup, Child};

/// A tree of aggregators.
pub struct Tree {
    /// The name for logs, as in `10.0.0.9:7411`.
    pub name: String,
    /// The group's key in this tree, which derives from the job's secret.
    pub key: [u8; 32],
}

/// The aggregators that a job may use, one device for each tree.
pub struct Aggregators {
    devices: Vec<Device>,
    trees: Vec<Tree>,
    rdma: Option<Arc<RdmaDevices>>,
}

impl Aggregators {
    /// Makes the provider of these trees, which are the same at all members. This member's chunks
    /// go by RDMA if it has devices and its aggregator has some too.
    #[must_use]
    pub fn new(trees: Vec<Tree>, rdma: Option<Arc<RdmaDevices>>) -> Self {
        let properties = properties(limits::OFFLOAD_WINDOW, limits::OFFLOAD_CHUNK_BYTES);
        let device = |tree: &Tree| Device { name: tree.name.clone(), properties };
        Self { devices: trees.iter().map(device).collect(), trees, rdma }
    }
}

/// The abilities of aggregators: children in order, by the same kernels as ringfold's own steps.
const fn properties(window: usize, chunk_bytes_max: usize) -> Properties {
    Properties { chunk_bytes_max, window, fixed_order: true, exact: true }
}

impl Provider for Aggregators {
    fn name(&self) -> &'static str {
        "aggregator"
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn supports(&self, device: usize, reduction: &Reduction) -> bool {
        let collectives = [Collective::AllReduce, Collective::Reduce, Collective::Barrier];
        device < self.devices.len() && collectives.contains(&reduction.collective)
    }

    /// Returns nothing: the aggregators' control port gives member 0 its ticket.
    fn listen(&mut self, _device: usize) -> Result<Vec<u8>, OffloadError> {
        Ok(Vec::new())
    }

    fn connect(
        &mut self,
        device: usize,
        member: u16,
        tickets: &[Vec<u8>],
    ) -> Result<Box<dyn Group>, OffloadError> {
        let tree = self.trees.get(device).ok_or(NO_DEVICE)?;
        let grant = Grant::decode(tickets.first().map_or(&[], Vec::as_slice))?;
        let nowhere = OffloadError::Protocol("a ticket without a place for this member");
        let (leaf, child) = grant.place(member).ok_or(nowhere)?;
        let child = Child { number: child, key: tree.key, members: member..=member };
        let properties = properties(grant.window, grant.chunk_bytes_max);
        let group = AggregatorGroup::connect(leaf.at, child, properties, self.rdma.as_deref())?;
        Ok(Box::new(group))
    }
}

const NO_DEVICE: OffloadError = OffloadError::Protocol("no such device");

impl std::fmt::Debug for Aggregators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aggregators").field("devices", &self.devices).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]
mod tests;
