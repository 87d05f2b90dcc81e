//! The errors of communicators and their calls.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use ringfold_bootstrap::FailureCause;
use ringfold_transport::LinkError;
use ringfold_types::{Call, Rank};

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
        /// The collective.
        call: &'static str,
        /// The invalid argument, and the values that are valid.
        what: String,
    },
    /// The job has failed. Every surviving rank gets the same cause, and every later call on this
    /// communicator returns the same error. The contents of output buffers are undefined.
    #[error(transparent)]
    Failed(Arc<Failure>),
    /// The job has failed, and this rank learned it only on leaving. All of its calls had returned
    /// without an error.
    #[error("rank {rank}, on leaving: {cause}")]
    Leave {
        /// This rank.
        rank: Rank,
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
    /// A setting is invalid.
    #[error(transparent)]
    Config(Arc<ConfigError>),
    /// The ranks could not form a group.
    #[error(transparent)]
    Init(Arc<InitError>),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Errors of other crates may repeat their source.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        f.write_str(&text)
    }
}

/// The call in which a rank learned that the job had failed, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// This rank.
    pub rank: Rank,
    /// The call that this rank was in, or was about to begin.
    pub call: Call,
    /// The call's number on this communicator, from 1.
    pub seq: u64,
    /// The cause of the failure: the same on every surviving rank.
    pub cause: Arc<FailureCause>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, call, seq, cause } = self;
        write!(f, "{call} #{seq} on rank {rank}: {cause}")
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
    /// The call has exceeded its timeout.
    Overdue,
}

impl From<LinkError> for CallError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use ringfold_bootstrap::JoinError;

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
    fn debug_prints_a_source_once_if_the_sentence_repeats_it() {
        let source = io::Error::other("no memory");
        let join = JoinError::System { rank: Rank(0), action: "join", source };
        let error = Error::from(InitError::Join(join));
        assert_eq!(format!("{error:?}").matches("no memory").count(), 1, "{error:?}");
    }
}
