//! The provider whose groups are links to ringfold's aggregators.
//!
//! Member 0 asks the aggregators' control port for the group, and tells the others where they
//! connect. Each member has one link, to the aggregator whose child it is. A chunk leaves at
//! once as far as its link takes it; the group keeps a copy of the rest.

mod group;

use std::sync::Arc;

use ringfold_types::Collective;

use crate::contract::{Device, Group, Properties, Provider, Reduction};
use crate::error::OffloadError;
use crate::wire::devices::RdmaDevices;
use crate::wire::links::Endpoints;
pub use group::{AggregatorGroup, Child};

/// A tree of aggregators.
pub struct Tree {
    /// The name for logs, as in `10.0.0.9:7411`.
    pub name: String,
    /// The group's key in this tree, which derives from the job's secret.
    pub key: [u8; 32],
    /// The aggregators that have members as children, in the order of those members.
    pub leaves: Vec<Leaf>,
}

/// An aggregator with members as children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The first member; the others follow without gaps.
    pub first: u16,
    /// The number of these members.
    pub children: u16,
    /// The endpoints of the group there.
    pub at: Endpoints,
}

impl Tree {
    /// The aggregator of a member, and the number of its child there.
    fn place(&self, member: u16) -> Option<(Endpoints, u8)> {
        let leaf = self.leaves.iter().rev().find(|leaf| leaf.first <= member)?;
        let child = member - leaf.first;
        (child < leaf.children).then_some((leaf.at, u8::try_from(child).ok()?))
    }
}

/// The aggregators that a job may use, one device for each tree.
pub struct Aggregators {
    devices: Vec<Device>,
    trees: Vec<Tree>,
    rdma: Option<Arc<RdmaDevices>>,
}

impl Aggregators {
    /// Makes the provider of these trees, which are the same at all members, as are the window and
    /// the bytes of a chunk. This member's chunks go by RDMA if it has devices and its aggregator
    /// has some too.
    #[must_use]
    pub fn new(
        trees: Vec<Tree>,
        (window, chunk_bytes_max): (usize, usize),
        rdma: Option<Arc<RdmaDevices>>,
    ) -> Self {
        // Children in order, by the same kernels as ringfold's own steps.
        let properties = Properties { chunk_bytes_max, window, exact: true };
        let device = |tree: &Tree| Device { name: tree.name.clone(), properties };
        Self { devices: trees.iter().map(device).collect(), trees, rdma }
    }
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

    fn connect(&mut self, device: usize, member: u16) -> Result<Box<dyn Group>, OffloadError> {
        let wrong = OffloadError::Protocol("no such device, or no place for this member");
        let tree = self.trees.get(device);
        let placed = tree.and_then(|tree| Some((tree, tree.place(member)?)));
        let (tree, (at, number)) = placed.ok_or(wrong)?;
        let child = Child { number, key: tree.key, members: member..=member };
        let properties = self.devices[device].properties;
        Ok(Box::new(AggregatorGroup::connect(at, child, properties, self.rdma.as_deref())?))
    }
}

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
