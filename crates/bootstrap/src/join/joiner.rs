//! A rank on its way into the job. It finds the coordinator (`place`), meets it, and gets the
//! roster (`roster`).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringfold_types::Rank;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::JoinError;
use crate::channel::{Greeting, Purpose};
use crate::dial::{Dial, Target};
use crate::relay::Relay;
use crate::secret::Secret;

/// The others wait this much longer than rank 0, so that it is rank 0 who says what is missing.
pub(super) const LAST_WORD: Duration = Duration::from_secs(2);
pub(super) type Cards = Vec<Vec<u8>>;

/// How to join.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait for all ranks.
    pub timeout: Duration,
    /// The address that rank 0 listens on; chosen from the rendezvous if `None`.
    pub bind: Option<IpAddr>,
    /// The address under which the others reach rank 0, where it differs from `bind`.
    pub advertise: Option<IpAddr>,
    /// This host's name, for messages; the system's if `None`.
    pub host: Option<String>,
    /// How long rank 0 waits for the others when it leaves.
    pub linger: Duration,
}

impl Default for Options {
    /// A minute to join, five seconds to leave.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            bind: None,
            advertise: None,
            host: None,
            linger: Duration::from_secs(5),
        }
    }
}

/// Where the coordinator, or the launcher, may listen.
pub(super) struct Place {
    /// A name, or an address, or several addresses of one host.
    pub(super) hosts: Vec<String>,
    /// The variable or other source that names the host.
    pub(super) named_by: &'static str,
    /// Candidates, in order.
    pub(super) ports: Vec<u16>,
}

impl Place {
    pub(super) fn at(address: SocketAddr, named_by: &'static str) -> Self {
        Self { hosts: vec![address.ip().to_string()], named_by, ports: vec![address.port()] }
    }
}

/// One rank on its way into the job.
pub(super) struct Joiner {
    pub(super) rank: Rank,
    pub(super) size: usize,
    pub(super) job: String,
    pub(super) secret: Secret,
    pub(super) options: Options,
    pub(super) deadline: Instant,
    /// In rank 0, the task that is the hub.
    pub(super) hub: JoinSet<()>,
    /// Where other ranks get the roster from this one.
    pub(super) relay: Option<Relay>,
}

impl Joiner {
    pub(super) fn dial<'a>(&'a self, greeting: &'a Greeting, place: &'a Place) -> Dial<'a> {
        Dial::new(self.target(greeting, place))
    }

    pub(super) fn target<'a>(&'a self, greeting: &'a Greeting, place: &'a Place) -> Target<'a> {
        let Self { rank, size, secret, deadline, .. } = self;
        Target {
            rank: *rank,
            size: *size,
            hosts: &place.hosts,
            named_by: place.named_by,
            ports: &place.ports,
            greeting,
            secret,
            timeout: self.options.timeout,
            deadline: *deadline,
        }
    }

    pub(super) fn greeting(&self, purpose: Purpose) -> Greeting {
        Greeting::new(purpose, &self.job, self.size)
    }

    pub(super) fn lost(&self, cause: &str) -> JoinError {
        JoinError::HubLost { rank: self.rank, cause: cause.into() }
    }
}
