//! The provider whose groups are connections to ringfold's aggregators: over TCP, or by the links
//! of a `Carrier`.
//!
//! Member 0 asks the aggregators' control port for the group, and its ticket tells the others where
//! they connect. Each member has one connection, to the aggregator whose child it is. A chunk
//! leaves at once as far as its way takes it; the group keeps a copy of the rest.

mod group;
mod incoming;
mod outgoing;
mod way;

use std::sync::Arc;

use ringfold_types::{Collective, limits};

use super::carrier::Carrier;
use super::contract::{Device, Group, Properties, Provider, Reduction};
use super::error::OffloadError;
use super::handshake::Place;
use super::ticket::Grant;
pub use group::{AggregatorGroup, Child};

/// A tree of aggregators.
pub struct Tree {
    /// The name for logs, as in `10.0.0.9:7411`.
    pub name: String,
    /// The group's key in this tree, which derives from the job's secret.
    pub key: [u8; 32],
    /// What the aggregators granted, at member 0; `None` at the others.
    pub grant: Option<Grant>,
}

/// The aggregators that a job may use, one device for each tree.
pub struct Aggregators {
    devices: Vec<Device>,
    trees: Vec<Tree>,
    carrier: Option<Arc<dyn Carrier>>,
}

impl Aggregators {
    /// Makes the provider of these trees, which are the same at all members. `carrier` carries the
    /// chunks of this member, if its aggregator has one too.
    #[must_use]
    pub fn new(trees: Vec<Tree>, carrier: Option<Arc<dyn Carrier>>) -> Self {
        let device = |tree: &Tree| {
            let (window, chunk_bytes_max) = tree
                .grant
                .as_ref()
                .map_or((limits::OFFLOAD_WINDOW, limits::OFFLOAD_CHUNK_BYTES), |grant| {
                    (grant.window, grant.chunk_bytes_max)
                });
            Device { name: tree.name.clone(), properties: properties(window, chunk_bytes_max) }
        };
        Self { devices: trees.iter().map(device).collect(), trees, carrier }
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

    fn listen(&mut self, device: usize) -> Result<Vec<u8>, OffloadError> {
        let tree = self.trees.get(device).ok_or(NO_DEVICE)?;
        Ok(tree.grant.as_ref().map(Grant::encode).unwrap_or_default())
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
        let place = Place { group: leaf.group, epoch: grant.epoch, child };
        let child = Child { place, key: tree.key, members: member..=member };
        let properties = properties(grant.window, grant.chunk_bytes_max);
        let group = AggregatorGroup::connect(leaf.at, child, properties, self.carrier.clone())?;
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
