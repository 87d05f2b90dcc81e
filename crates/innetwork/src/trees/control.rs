//! The control port of an aggregator: one request and one answer for each connection, encrypted and
//! authenticated by the site's secret.
//!
//! The member that asks for a group sends the group's key, which derives from the job's secret. So
//! an aggregator knows nothing by which it could pose as a rank of the job.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::service::{self, RequestError, Shared};
use serde::{Deserialize, Serialize};

/// The terms of a group, which are the same at all aggregators of its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The job, for `ringfold aggregate --stats`. At most 64 bytes.
    pub job: String,
    /// The group's key, which derives from the job's secret.
    pub key: [u8; 32],
    /// Ranks of the communicator, by which averages are divided.
    pub ranks: u32,
    /// Chunks that a child may be ahead.
    pub window: u8,
    /// Bytes of a child's part of a chunk, at most.
    pub chunk_bytes: u32,
}

/// A request for a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The terms.
    pub terms: Terms,
    /// The first member below this aggregator. The others follow.
    pub first: u16,
    /// Members below each child, in the order of the children: 1 for a child that is a member.
    pub members: Vec<u16>,
    /// The group above, to which this one sends its sums. `None` for the top of the tree.
    pub above: Option<Above>,
}

/// A group at an aggregator's parent, or another group at the same aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Above {
    /// The group's number there.
    pub group: u32,
    /// The port of its endpoint for TCP, at the address of the control port.
    pub port: u16,
    /// The port of its endpoint for RDMA; 0 if it has none.
    pub rdma_port: u16,
    /// The child that this group is there.
    pub child: u8,
    /// Whether it is at the same aggregator. Otherwise it is at the parent that the aggregator was
    /// started with.
    pub is_here: bool,
}

/// A group that an aggregator has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The group's number at the aggregator.
    pub group: u32,
    /// The port of the group's endpoint for TCP, at the address of the control port.
    pub port: u16,
    /// The port of its endpoint for RDMA; 0 if it has none.
    pub rdma_port: u16,
    /// The rate of all its links together in Mbit/s; 0 if it does not know.
    pub mbps: u32,
}

/// The numbers of one group, for `ringfold aggregate --stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStats {
    /// The job that asked for the group.
    pub job: String,
    /// The group's number.
    pub group: u32,
    /// Its children, and those of them that are connected.
    pub children: (u32, u32),
    /// The group above, if there is one.
    pub parent: Option<Parent>,
    /// Its slots.
    pub slots: u32,
    /// Connected children whose chunks go by RDMA.
    pub linked: u32,
    /// Bytes of memory that it may use.
    pub memory: u64,
    /// Chunks that have been combined.
    pub chunks: u64,
    /// Bytes that children have handed over.
    pub bytes: u64,
    /// Nanoseconds for which a chunk that had begun waited for children or for the group above.
    pub waited: u64,
}

/// The group above one at an aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The address of its endpoint.
    pub at: String,
    /// Its number there.
    pub group: u32,
    /// Whether the aggregator is connected to it.
    pub is_connected: bool,
}

/// The numbers of an aggregator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Bytes of the pool, and bytes of it that groups use.
    pub memory: (u64, u64),
    /// All groups.
    pub groups: Vec<GroupStats>,
}

/// A request to an aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAggregator {
    /// Asks for a group.
    Ask(Ask),
    /// Asks for the numbers.
    Stats,
    /// Asks for the parent.
    Parent,
}

/// The answer of an aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAggregator {
    /// The group exists, and its members may connect.
    Granted(Granted),
    /// There is no group, for this reason.
    Refused(String),
    /// The numbers.
    Stats(Stats),
    /// The control port of the parent, if the aggregator was started with one.
    Parent(Option<String>),
}

/// The reason why an aggregator gives no group or no numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The aggregator does not answer.
    #[error("the aggregator at {at} does not answer")]
    Unreachable {
        /// Its address.
        at: String,
        /// The reason.
        source: io::Error,
    },
    /// The aggregator holds another site secret.
    #[error(
        "the aggregator at {at} holds another site secret; give both the same file by \
         RINGFOLD_SITE_SECRET_FILE"
    )]
    WrongSecret {
        /// Its address.
        at: String,
    },
    /// The process at that address is no aggregator, or one of another version.
    #[error("no aggregator of this version listens at {at}: {reason}")]
    Other {
        /// The address.
        at: String,
        /// The reason.
        reason: String,
    },
    /// The aggregator refuses.
    #[error("the aggregator at {at} refused the group: {reason}")]
    Refused {
        /// Its address.
        at: String,
        /// Its reason.
        reason: String,
    },
}

/// Asks the aggregator at `at` (`host:port`) for a group. Returns the grant and the address of the
/// group's endpoint for TCP. Waits for at most `timeout`.
///
/// # Errors
/// The aggregator does not answer in time, or refuses.
pub fn ask(
    at: &str,
    site: &Secret,
    ask: Ask,
    timeout: Duration,
) -> Result<(Granted, SocketAddr), AskError> {
    match request(at, site, &ToAggregator::Ask(ask), timeout)? {
        (FromAggregator::Granted(granted), peer) => {
            Ok((granted, SocketAddr::new(peer.ip(), granted.port)))
        }
        (FromAggregator::Refused(reason), _) => Err(AskError::Refused { at: at.into(), reason }),
        _ => Err(unexpected(at)),
    }
}

/// Asks the aggregator at `at` for its numbers. Waits for at most `timeout`.
///
/// # Errors
/// The aggregator does not answer in time.
pub fn stats(at: &str, site: &Secret, timeout: Duration) -> Result<Stats, AskError> {
    match request(at, site, &ToAggregator::Stats, timeout)? {
        (FromAggregator::Stats(stats), _) => Ok(stats),
        _ => Err(unexpected(at)),
    }
}

/// Asks the aggregator at `at` for the control port of its parent. Waits for at most `timeout`.
///
/// # Errors
/// The aggregator does not answer in time.
pub fn parent(at: &str, site: &Secret, timeout: Duration) -> Result<Option<String>, AskError> {
    match request(at, site, &ToAggregator::Parent, timeout)? {
        (FromAggregator::Parent(parent), _) => Ok(parent),
        _ => Err(unexpected(at)),
    }
}

/// The digests of the sources of requests, and of the links that follow.
pub(crate) const SOURCES: &[&str] = &[crate::SOURCES, ringfold_transport::SOURCES];

fn unexpected(at: &str) -> AskError {
    AskError::Other { at: at.into(), reason: "it answers another question".into() }
}

fn request(
    at: &str,
    site: &Secret,
    message: &ToAggregator,
    timeout: Duration,
) -> Result<(FromAggregator, SocketAddr), AskError> {
    let shared = Shared { secret: site.clone(), sources: SOURCES };
    service::request(at, &shared, message, timeout).map_err(|error| match error {
        RequestError::Io(source) => AskError::Unreachable { at: at.into(), source },
        RequestError::WrongSecret => AskError::WrongSecret { at: at.into() },
        other => AskError::Other { at: at.into(), reason: other.to_string() },
    })
}
