//! The provider of in-network reduction, as a communicator uses it: a place to ask for groups, and
//! to connect to them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{LeafGrant, Placement, Terms, TreeGrant, grant};
use ringfold_transport::offload::aggregator::{Aggregators, Tree};
use ringfold_transport::offload::ticket::{Grant, Leaf};
use ringfold_transport::offload::{Carrier, Group, OffloadError, Provider as _, Reduction};
use ringfold_types::{Chain, limits};

/// The time that an aggregator may take to answer.
pub(crate) const ASK: Duration = Duration::from_millis(limits::HANDSHAKE_MS);

/// A provider whose groups are numbered. A group that is asked for again has another term.
pub(crate) trait Site: fmt::Debug + Send + Sync {
    /// The name of a group's device, for the log.
    fn name(&self, group: usize) -> String;

    /// Asks for a group. Only rank 0 does. Returns the ticket by which the members connect. Blocks
    /// for some seconds at most.
    ///
    /// # Errors
    /// The reason why there is no such group.
    fn ask(&self, group: usize, term: u32) -> Result<Vec<u8>, String>;

    /// Begins to connect a member to a term of a group (`which`). Does not block.
    ///
    /// # Errors
    /// The ticket is wrong, or the system refuses a descriptor.
    fn connect(
        &self,
        which: (usize, u32),
        member: u16,
        ticket: &[u8],
    ) -> Result<Box<dyn Group>, OffloadError>;

    /// Whether a group performs `reduction`: the same on all ranks.
    fn supports(&self, group: usize, reduction: &Reduction) -> bool;
}

/// The trees of aggregators that the settings name, one for each group.
pub(crate) struct AggregatorSite {
    /// The address of each group's root.
    pub(crate) names: Vec<String>,
    /// The trees and the site's secret; `None` on ranks that do not ask.
    pub(crate) asking: Option<(Vec<Placement>, Secret)>,
    /// The source of the groups' keys. An aggregator cannot derive other keys from its own.
    pub(crate) keys: Secret,
    /// The job, for the aggregators' lists.
    pub(crate) job: String,
    /// Ranks of the communicator.
    pub(crate) ranks: usize,
    /// Carries this rank's chunks, if it has devices for that.
    pub(crate) carrier: Option<Arc<dyn Carrier>>,
}

impl AggregatorSite {
    /// The key of a group. Only members and the group's aggregators know it. The numbers of groups
    /// change when some are refused, so the name of the root tells them apart.
    fn key(&self, group: usize, term: u32) -> [u8; 32] {
        self.keys.derive(&["in-network", &self.name(group), &term.to_string()])
    }

    /// Asks all aggregators of a tree for the groups of a term. Blocks for some seconds at most.
    ///
    /// # Errors
    /// The reason why there is no such group.
    pub(crate) fn grant(&self, group: usize, term: u32) -> Result<TreeGrant, String> {
        let asking = self.asking.as_ref();
        let tree = asking.and_then(|(trees, site)| Some((trees.get(group)?, site)));
        let (tree, site) = tree.ok_or("this rank does not ask for groups")?;
        let terms = Terms {
            job: self.job.clone(),
            key: self.key(group, term),
            ranks: u32::try_from(self.ranks).unwrap_or(u32::MAX),
            window: u8::try_from(limits::OFFLOAD_WINDOW).unwrap_or(u8::MAX),
            chunk_bytes: u32::try_from(limits::OFFLOAD_CHUNK_BYTES).unwrap_or(u32::MAX),
        };
        grant(tree, &terms, site, ASK).map_err(|error| Chain(&error).to_string())
    }

    /// The provider of one group.
    fn provider(&self, group: usize, term: u32) -> Aggregators {
        let tree = Tree { name: self.name(group), key: self.key(group, term), grant: None };
        Aggregators::new(vec![tree], self.carrier.clone())
    }
}

/// The ticket by which members find the aggregators that have granted a group.
pub(crate) fn ticket(granted: &TreeGrant) -> Vec<u8> {
    let leaf = |leaf: &LeafGrant| {
        let LeafGrant { first, children, group, at } = *leaf;
        Leaf { first, children, group, at }
    };
    let grant = Grant {
        window: limits::OFFLOAD_WINDOW,
        chunk_bytes_max: limits::OFFLOAD_CHUNK_BYTES,
        epoch: 1,
        leaves: granted.leaves.iter().map(leaf).collect(),
    };
    grant.encode()
}

impl Site for AggregatorSite {
    fn name(&self, group: usize) -> String {
        self.names.get(group).cloned().unwrap_or_default()
    }

    fn ask(&self, group: usize, term: u32) -> Result<Vec<u8>, String> {
        self.grant(group, term).map(|granted| ticket(&granted))
    }

    fn connect(
        &self,
        (group, term): (usize, u32),
        member: u16,
        ticket: &[u8],
    ) -> Result<Box<dyn Group>, OffloadError> {
        self.provider(group, term).connect(0, member, &[ticket.to_vec()])
    }

    fn supports(&self, group: usize, reduction: &Reduction) -> bool {
        group < self.names.len() && self.provider(group, 0).supports(0, reduction)
    }
}

impl fmt::Debug for AggregatorSite {
    /// Omits the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregatorSite").field("names", &self.names).finish_non_exhaustive()
    }
}
