//! The provider of in-network reduction, as a communicator uses it: a place to ask for groups, and
//! to connect to them.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{Ask, ask};
use ringfold_transport::offload::aggregator::{Aggregators, Tree};
use ringfold_transport::offload::ticket::{Grant, Leaf};
use ringfold_transport::offload::{Group, OffloadError, Provider as _, Reduction};
use ringfold_types::{Chain, limits};

/// The time that an aggregator may take to answer.
const ASK: Duration = Duration::from_millis(limits::HANDSHAKE_MS);

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

/// The aggregators that the settings name.
pub(crate) struct AggregatorSite {
    /// The control port of each group's aggregator.
    pub(crate) places: Vec<String>,
    /// The site's secret; `None` on ranks that do not ask.
    pub(crate) site: Option<Secret>,
    /// The source of the groups' keys. An aggregator cannot derive other keys from its own.
    pub(crate) keys: Secret,
    /// The job, for the aggregator's list.
    pub(crate) job: String,
    /// Ranks of the communicator.
    pub(crate) ranks: usize,
    /// Members of each group.
    pub(crate) members: usize,
}

impl AggregatorSite {
    /// The key of a group. Only members and the group's aggregator know it.
    fn key(&self, group: usize, term: u32) -> [u8; 32] {
        let place = self.places.get(group).map_or("", String::as_str);
        self.keys.derive(&["in-network", place, &group.to_string(), &term.to_string()])
    }

    /// The provider of one group.
    fn provider(&self, group: usize, term: u32) -> Aggregators {
        let tree = Tree { name: self.name(group), key: self.key(group, term), grant: None };
        Aggregators::new(vec![tree])
    }
}

impl Site for AggregatorSite {
    fn name(&self, group: usize) -> String {
        self.places.get(group).cloned().unwrap_or_default()
    }

    fn ask(&self, group: usize, term: u32) -> Result<Vec<u8>, String> {
        let (Some(site), Some(place)) = (&self.site, self.places.get(group)) else {
            return Err("this rank does not have the site's secret".into());
        };
        let most = limits::AGGREGATOR_CHILDREN_MAX;
        let children = u16::try_from(self.members).ok().filter(|it| usize::from(*it) <= most);
        let children = children
            .ok_or_else(|| format!("{} hosts are more than {most} children", self.members))?;
        let request = Ask {
            job: self.job.clone(),
            key: self.key(group, term),
            ranks: u32::try_from(self.ranks).unwrap_or(u32::MAX),
            first: 0,
            members: vec![1; children.into()],
            window: u8::try_from(limits::OFFLOAD_WINDOW).unwrap_or(u8::MAX),
            chunk_bytes: u32::try_from(limits::OFFLOAD_CHUNK_BYTES).unwrap_or(u32::MAX),
            above: None,
        };
        let (granted, at): (_, SocketAddr) =
            ask(place, site, request, ASK).map_err(|error| Chain(&error).to_string())?;
        let leaf = Leaf { first: 0, children, group: granted.group, at };
        let grant = Grant {
            window: limits::OFFLOAD_WINDOW,
            chunk_bytes_max: limits::OFFLOAD_CHUNK_BYTES,
            epoch: 1,
            leaves: vec![leaf],
        };
        Ok(grant.encode())
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
        group < self.places.len() && self.provider(group, 0).supports(0, reduction)
    }
}

impl fmt::Debug for AggregatorSite {
    /// Omits the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregatorSite").field("places", &self.places).finish_non_exhaustive()
    }
}
