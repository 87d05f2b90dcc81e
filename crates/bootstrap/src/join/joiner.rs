//! A rank that joins a job. It finds the coordinator (`locate`), registers there, and gets the
//! roster (`roster`).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringfold_types::Rank;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::error::JoinError;
use crate::arbiter::cut;
use crate::channel::greeting::{Greeting, Purpose};
use crate::control::aborter::Aborter;
use crate::control::message::GroupFailure;
use crate::control::rank_state::RankState;
use crate::control::relay::{Branch, Fetcher, Relay};
use crate::discover::secret::Secret;
use crate::look::key_of;
use crate::regroup::Seat;
use crate::regroup::meeting_point::MeetingPoint;
use crate::regroup::witness::Witness;

/// How much longer other ranks wait than rank 0, so that rank 0 reports first which ranks are
/// missing.
pub(super) const EXTRA_WAIT: Duration = Duration::from_secs(2);
pub(super) type PeerInfos = Vec<Vec<u8>>;

/// Options of joining.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait for all ranks.
    pub timeout: Duration,
    /// The address that rank 0 listens on. If `None`, the rendezvous determines it.
    pub bind: Option<IpAddr>,
    /// The address at which the others reach rank 0, if it differs from `bind`.
    pub advertise: Option<IpAddr>,
    /// This host's name, for messages. If `None`, the system's name.
    pub host: Option<String>,
    /// How long rank 0 waits for the others when it leaves.
    pub linger: Duration,
    /// The group whose ranks join, if they are some ranks of a group.
    pub parent: Option<Parent>,
    /// The witness of this rank, which decides between two halves of the group after a failure.
    pub witness: Option<Witness>,
}

/// The ties of ranks that join, and are some ranks of a group.
#[derive(Clone, Debug)]
pub enum Parent {
    /// The ranks share a group.
    Group(ParentGroup),
    /// The ranks regroup after a failure of their group.
    Seat(Arc<Seat>),
}

impl Parent {
    /// Tells the other members that this one, as `rank` of the group that is made, cannot join.
    pub(super) fn fail(&self, rank: Rank, reason: String) {
        match self {
            Self::Group(group) => group.fail(rank, reason),
            // The others notice that the seat is given up.
            Self::Seat(_) => {}
        }
    }

    /// Waits until a member has failed or left, or cannot join. This process is `rank` of the group
    /// that is made.
    pub(super) async fn failure(self, rank: Rank) -> JoinError {
        match self {
            Self::Group(group) => group.failure(rank).await,
            Self::Seat(seat) => match seat.failure().await {
                Some(member) => JoinError::SeatLeft { rank, member },
                None => std::future::pending().await,
            },
        }
    }
}

/// The group whose ranks join another one. The wait ends if a member fails in that group, leaves
/// it, or cannot join the other one.
#[derive(Clone, Debug)]
pub struct ParentGroup {
    /// A random number for the group that is made.
    pub group: u128,
    /// This rank's handle of the group.
    pub aborter: Aborter,
    /// The members, by their ranks in the group.
    pub members: Vec<Rank>,
}

/// The time between two looks at the parent group.
const LOOK: Duration = Duration::from_millis(20);

/// How long a member must have left the parent group. It may do so as soon as it has joined, a
/// moment before this rank learns that all have.
const LEFT_GRACE: Duration = Duration::from_secs(1);

impl ParentGroup {
    /// Tells the other members that this one, as `rank` of the group that is made, cannot join.
    pub(super) fn fail(&self, Rank(rank): Rank, reason: String) {
        let reason = cut(reason);
        self.aborter.fail_group(GroupFailure { group: self.group, rank, reason });
    }

    /// Waits until a member has failed or left, or cannot join. This process is `rank` of the group
    /// that is made.
    pub(super) async fn failure(self, rank: Rank) -> JoinError {
        loop {
            if let Some(error) = self.error(rank) {
                return error;
            }
            sleep(LOOK).await;
        }
    }

    /// The reason why `rank` of the new group need not wait for the others, if a member has failed
    /// in the parent group, has left it, or cannot join.
    #[must_use]
    pub fn error(&self, rank: Rank) -> Option<JoinError> {
        let Self { group, aborter, members } = self;
        let cause = aborter.failure_cause();
        let is_member = |rank: &Rank| members.contains(rank);
        if let Some(cause) = cause.filter(|it| it.culprits().iter().any(is_member)) {
            return Some(JoinError::ParentFailed { rank, cause });
        }
        if let Some(GroupFailure { rank, reason, .. }) = aborter.state.group_failure(*group) {
            return Some(JoinError::Peer { peer: Rank(rank), reason });
        }
        let own = aborter.rank();
        if aborter.is_over() {
            return Some(JoinError::ParentLeft { rank, member: own });
        }
        // Rank 0 of the group watches all members and tells the others. They watch rank 0 alone.
        let watched = if rank == Rank(0) { &members[..] } else { members.get(..1)? };
        let has_left = |it: &Rank| aborter.left_since(*it).is_some_and(|since| since >= LEFT_GRACE);
        let member = watched.iter().copied().find(|it| *it != own && has_left(it))?;
        Some(JoinError::ParentLeft { rank, member })
    }
}

impl Default for Options {
    /// Allows a minute to join and five seconds to leave.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            bind: None,
            advertise: None,
            host: None,
            linger: Duration::from_secs(5),
            parent: None,
            witness: None,
        }
    }
}

/// The addresses where the coordinator or the launcher may listen.
pub(super) struct Candidates {
    /// A name, an address, or several addresses of one host.
    pub(super) hosts: Vec<String>,
    /// The variable or other source that names the host, as in `MASTER_ADDR`.
    pub(super) named_by: &'static str,
    /// Candidate ports, in order.
    pub(super) ports: Vec<u16>,
    /// Whether the launcher listens there, from before the rank began.
    pub(super) is_launcher: bool,
}

impl Candidates {
    pub(super) fn at(address: SocketAddr, named_by: &'static str) -> Self {
        let (hosts, ports) = (vec![address.ip().to_string()], vec![address.port()]);
        Self { hosts, named_by, ports, is_launcher: false }
    }

    pub(super) fn place(&self) -> String {
        match self.ports[..] {
            [port] => format!("{}:{port}", self.host()),
            [first, .., last] => format!("{}, ports {first} to {last}", self.host()),
            [] => self.host(),
        }
    }

    pub(super) fn host(&self) -> String {
        self.hosts.join(" or ")
    }
}

/// One rank that joins a job.
pub(super) struct Joiner {
    pub(super) rank: Rank,
    pub(super) size: usize,
    pub(super) job: String,
    pub(super) secret: Secret,
    pub(super) options: Options,
    pub(super) deadline: Instant,
    pub(super) state: Arc<RankState>,
    /// In rank 0, the task of the coordinator.
    pub(super) coordinator: JoinSet<()>,
    /// Where this rank regroups with others after a failure.
    pub(super) meeting: OnceLock<Option<Arc<MeetingPoint>>>,
    /// The port where other ranks fetch messages from this one.
    pub(super) relay: Option<Relay>,
    /// The address at which this rank reached rank 0.
    pub(super) reached: Option<IpAddr>,
}

impl Joiner {
    pub(super) fn greeting(&self, purpose: Purpose) -> Greeting {
        Greeting::new(purpose, &self.job, self.size)
    }

    /// The means to fetch messages; rank 0 has none.
    pub(super) fn fetcher(&self) -> Option<Fetcher> {
        let (greeting, secret) = (self.greeting(Purpose::Relay), self.secret.clone());
        let (rank, size) = (self.rank, self.size);
        self.reached.map(|coordinator| Fetcher { rank, size, coordinator, greeting, secret })
    }

    /// This rank's place in the tree; rank 0 has none.
    pub(super) fn branch(&mut self) -> Option<Branch> {
        let relay = self.relay.take();
        self.fetcher().map(|fetcher| Branch { fetcher, relay })
    }

    /// Opens the port where this rank regroups with others, unless it is open, on one of these
    /// addresses, or on every address if there are none. Returns 0 if no port is free.
    pub(super) fn open_meeting_point(&self, ips: &[IpAddr]) -> u16 {
        let open = || {
            let greeting = self.greeting(Purpose::Regroup);
            let look = (&self.state.calls, key_of(&self.secret, &self.job));
            let (shared, witness) = ((greeting, self.secret.clone()), self.options.witness.clone());
            let opened = MeetingPoint::open(ips, self.size, shared, witness, look);
            let opened = opened.inspect_err(|e| {
                tracing::warn!("rank {} cannot regroup after a failure: {e}", self.rank);
            });
            opened.ok().map(Arc::new)
        };
        self.meeting.get_or_init(open).as_ref().map_or(0, |meeting| meeting.port())
    }

    pub(super) fn lost(&self, cause: &str) -> JoinError {
        JoinError::CoordinatorLost { rank: self.rank, cause: cause.into() }
    }
}
