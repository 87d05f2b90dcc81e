//! The errors of communicators and their calls.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use ringfold_bootstrap::{FailureCause, RegroupError};
use ringfold_transport::LinkError;
use ringfold_types::{Call, Chain, Rank, UnevenCall};

use crate::config::ConfigError;
use crate::setup::InitError;

/// The reason why a call failed, or why no communicator was made.
///
/// `Display` prints one sentence without the error's source. `Debug` prints that sentence and the
/// chain of sources behind it, so a `main` that returns this error ends with a readable message:
///
/// ```
/// use ringfold::{Config, Error};
///
/// let setting = ("RINGFOLD_ALGO".to_owned(), "allreduce:teleport".to_owned());
/// let error = Error::from(Config::from_map([setting].into()).unwrap_err());
/// assert_eq!(error.to_string(), "RINGFOLD_ALGO is not a choice of algorithms");
/// assert!(format!("{error:?}").starts_with("RINGFOLD_ALGO is not a choice of algorithms: "));
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is invalid. This rank sent nothing, and the communicator remains usable.
    #[error("{call} on rank {rank}: {what}")]
    Argument {
        /// This rank.
        rank: Rank,
        /// The call, as in `allreduce`.
        call: &'static str,
        /// The invalid argument, and the values that are valid.
        what: String,
    },
    /// A message is longer than the buffer of the receive that takes it. The message stays for a
    /// later receive, and the communicator remains usable.
    #[error(
        "recv on rank {rank}: the buffer of {buffer} bytes is too short for the message of {} \
         bytes from rank {} with tag {}; a longer buffer receives it (probe tells the length)",
        message.bytes, message.peer, message.tag
    )]
    Truncated {
        /// This rank.
        rank: Rank,
        /// The length of the buffer in bytes.
        buffer: usize,
        /// The message.
        message: Message,
    },
    /// The job has failed. Every surviving rank gets the same cause, and every later call on this
    /// communicator returns the same error. The contents of output buffers are undefined.
    #[error(transparent)]
    Failed(Arc<Failure>),
    /// The job has failed, and this rank learned it only on leaving. All of its calls had returned
    /// without an error.
    #[error("rank {rank}{}, on leaving: {cause}", OfGroup(group))]
    Leave {
        /// This rank.
        rank: Rank,
        /// The group, as [`Communicator::group_name`](crate::Communicator::group_name) names it.
        group: Option<Arc<str>>,
        /// The cause of the failure.
        cause: Arc<FailureCause>,
    },
    /// This process is a child that `fork` made. Only its parent may use the communicator. The
    /// call sent nothing.
    #[error(
        "rank {rank}: this process was forked from the one that made the communicator, which alone \
         may use it; make communicators after the fork, or start children by `exec` (\"spawn\")"
    )]
    Forked {
        /// The rank of the parent.
        rank: Rank,
    },
    /// The ranks could not form a group of a communicator, which remains usable.
    #[error("rank {rank} cannot join the group {group:?}")]
    Group {
        /// This rank in the parent group.
        rank: Rank,
        /// The name of the group.
        group: Arc<str>,
        /// The reason.
        source: Arc<InitError>,
    },
    /// The survivors of a failure could not form a communicator.
    #[error("rank {rank}{} cannot regroup", OfGroup(group))]
    Regroup {
        /// This rank.
        rank: Rank,
        /// The group, as [`Communicator::group_name`](crate::Communicator::group_name) names it.
        group: Option<Arc<str>>,
        /// The reason.
        source: Arc<RegroupError>,
    },
    /// A setting is invalid.
    #[error(transparent)]
    Config(Arc<ConfigError>),
    /// The ranks could not form a group.
    #[error(transparent)]
    Init(Arc<InitError>),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Chain(self), f)
    }
}

/// The operation in which a rank learned that the job had failed, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// This rank in its group.
    pub rank: Rank,
    /// The group, as [`Communicator::group_name`](crate::Communicator::group_name) names it. The
    /// ranks of the failure are those of the group.
    pub group: Option<Arc<str>>,
    /// The operation that this rank was in, or was about to begin.
    pub operation: Operation,
    /// The cause of the failure: the same on every surviving rank.
    pub cause: Arc<FailureCause>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, group, operation, cause } = self;
        write!(f, "{operation} on rank {rank}{}: {cause}", OfGroup(group))
    }
}

/// An operation of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A collective.
    #[non_exhaustive]
    Call {
        /// The call.
        call: Call,
        /// Its number on this communicator, from 1.
        seq: u64,
    },
    /// A point-to-point message that this rank sends. It has no number.
    Message(Message),
    /// A receive of a point-to-point message.
    #[non_exhaustive]
    Receive {
        /// The sender; `None` for any rank.
        from: Option<Rank>,
        /// The tag; `None` for any.
        tag: Option<u32>,
        /// The length of the buffer in bytes.
        bytes: usize,
    },
    /// A look for the next message of a rank.
    #[non_exhaustive]
    Probe {
        /// The sender; `None` for any rank.
        from: Option<Rank>,
    },
    /// A collective whose parts may differ in length.
    #[non_exhaustive]
    Uneven {
        /// The call.
        call: UnevenCall,
        /// Its number on this communicator, from 1. Every collective counts.
        seq: u64,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { call, seq } => write!(f, "{call} #{seq}"),
            Self::Message(message) => message.fmt(f),
            Self::Receive { from, tag, bytes } => {
                write!(f, "recv [{bytes} bytes from {}, {}]", AnyRank(*from), AnyTag(*tag))
            }
            Self::Probe { from } => write!(f, "probe [{}]", AnyRank(*from)),
            Self::Uneven { call, seq } => write!(f, "{call} #{seq}"),
        }
    }
}

/// One end of a point-to-point message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Whether this rank sends it.
    pub is_sent: bool,
    /// The rank at the other end.
    pub peer: Rank,
    /// The tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: usize,
}

impl fmt::Display for Message {
    /// As in `send [40 bytes to rank 3, tag 7]` and `recv [40 bytes from rank 3, tag 7]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_sent, peer, tag, bytes } = self;
        let (verb, way) = if *is_sent { ("send", "to") } else { ("recv", "from") };
        write!(f, "{verb} [{bytes} bytes {way} rank {peer}, tag {tag}]")
    }
}

/// Prints the source of a receive.
struct AnyRank(Option<Rank>);

impl fmt::Display for AnyRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(f, "rank {rank}"),
            None => f.write_str("any rank"),
        }
    }
}

/// Prints the tag of a receive.
struct AnyTag(Option<u32>);

impl fmt::Display for AnyTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(tag) => write!(f, "tag {tag}"),
            None => f.write_str("any tag"),
        }
    }
}

/// Prints the group of a rank, after the rank.
struct OfGroup<'a>(&'a Option<Arc<str>>);

impl fmt::Display for OfGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |group| write!(f, " of the group {group:?}"))
    }
}

impl StdError for Failure {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(Arc::new(failure))
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Arc::new(error))
    }
}

impl From<InitError> for Error {
    fn from(error: InitError) -> Self {
        Self::Init(Arc::new(error))
    }
}

/// The reason why a call cannot finish, as one rank observes it.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The job has failed.
    FailureCause(Arc<FailureCause>),
    /// A link failed.
    Link(LinkError),
    /// This peer is in another call.
    Foreign(Rank),
    /// This peer has left the job, and nothing of it is on its way.
    Left(Rank),
    /// The message at the front differs from the one that this rank expects of the peer.
    Unexpected {
        /// The peer.
        peer: Rank,
        /// Both messages, as text.
        cause: String,
    },
    /// An operation of the user has panicked with this text.
    Panicked(String),
    /// The call has exceeded its timeout.
    Overdue,
}

impl CallError {
    /// The peer of the link or message that the error is about.
    pub(crate) const fn peer(&self) -> Option<Rank> {
        match self {
            Self::Link(link) => Some(link.link.peer),
            Self::Unexpected { peer, .. } | Self::Left(peer) => Some(*peer),
            _ => None,
        }
    }
}

impl From<LinkError> for CallError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use ringfold_bootstrap::{DiscoverError, JoinError, SecretError};
    use ringfold_topology::discover::files;
    use ringfold_transport::{shm, tcp};

    use super::*;
    use crate::setup::UnreadablePeerInfo;

    fn listing() -> Error {
        InitError::Interfaces(io::Error::other("out of sockets")).into()
    }

    #[test]
    fn display_leaves_the_source_to_the_chain() {
        let error = listing();
        assert_eq!(error.to_string(), "cannot list this host's network interfaces");
        assert_eq!(error.source().unwrap().to_string(), "out of sockets");
        let (rank, source) = (Rank(3), UnreadablePeerInfo);
        let error = Error::from(InitError::PeerInfo { rank, source });
        assert!(!error.to_string().contains(&source.to_string()), "{error}");
    }

    #[test]
    fn debug_prints_each_cause_once() {
        let text = "cannot list this host's network interfaces: out of sockets";
        assert_eq!(format!("{:?}", listing()), text);
        assert_eq!(format!("{:#?}", listing()), text);
        let nothing_behind = Error::Forked { rank: Rank(1) };
        assert_eq!(format!("{nothing_behind:?}"), nothing_behind.to_string());
    }

    #[test]
    fn debug_prints_the_cause_of_every_init_error_once() {
        let (rank, address) = (Rank(0), SocketAddr::from(([127, 0, 0, 1], 80)));
        let cause = || io::Error::other("the cause");
        let site = files::Error { file: "fabric".into(), line: 1, reason: "the cause".to_owned() };
        let errors: [Error; 10] = [
            InitError::Discover(DiscoverError::Socket { fd: 3, source: cause() }).into(),
            InitError::Secret(SecretError::Unreadable { place: "x".into(), source: cause() })
                .into(),
            InitError::Join(JoinError::System { rank, action: "join", source: cause() }).into(),
            InitError::Topology(site.into()).into(),
            InitError::Interfaces(cause()).into(),
            InitError::Listen { rank, source: tcp::ListenError::Bind { address, source: cause() } }
                .into(),
            InitError::Tcp(tcp::ConnectError::Events(cause())).into(),
            InitError::Shm { rank, source: shm::ConnectError::Io(cause()) }.into(),
            InitError::UniqueId(cause()).into(),
            InitError::Descriptors(cause()).into(),
        ];
        for error in &errors {
            let text = format!("{error:?}");
            assert_eq!(text.matches("the cause").count(), 1, "{text}");
            assert!(!error.to_string().contains("the cause"), "{error}");
        }
    }
}
