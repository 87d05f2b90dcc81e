//! What can go wrong, for the user.

use std::fmt;
use std::sync::Arc;

use ringfold_bootstrap::Verdict;
use ringfold_transport::LinkError;
use ringfold_types::{Call, Rank};

use crate::config::ConfigError;
use crate::setup::InitError;

/// Why a call, or the making of a communicator, failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments do not fit each other. Nothing was sent; the communicator is as before.
    #[error("{call} on rank {rank}: {what}")]
    Argument {
        /// This rank.
        rank: Rank,
        /// The collective.
        call: &'static str,
        /// What does not fit, and what would.
        what: String,
    },
    /// The job has failed. Every surviving rank gets the same verdict, and every later call on this
    /// communicator the same error. The contents of output buffers are undefined.
    #[error(transparent)]
    Failed(Arc<Failure>),
    /// The job has failed, as this rank heard when it left. Its calls had returned without error.
    #[error("rank {rank}, on leaving: {verdict}")]
    Leave {
        /// This rank.
        rank: Rank,
        /// What happened.
        verdict: Arc<Verdict>,
    },
    /// This process is a child made by `fork` of the one that made the communicator, which alone
    /// may use it. Nothing was sent.
    #[error(
        "rank {rank}: this process was forked from the one that made the communicator, which alone \
         may use it; make communicators after the fork, or start children by `exec` (\"spawn\")"
    )]
    Forked {
        /// The rank of the parent.
        rank: Rank,
    },
    /// A setting makes no sense.
    #[error(transparent)]
    Config(Arc<ConfigError>),
    /// The ranks could not come together.
    #[error(transparent)]
    Init(Arc<InitError>),
}

/// What a rank was doing when the job failed, and why it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// This rank.
    pub rank: Rank,
    /// The call it was in, or about to begin.
    pub call: Call,
    /// The call's number on this communicator, from 1.
    pub seq: u64,
    /// What happened: the same on every surviving rank.
    pub verdict: Arc<Verdict>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, call, seq, verdict } = self;
        write!(f, "{call} #{seq} on rank {rank}: {verdict}")
    }
}

impl std::error::Error for Failure {}

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

/// Why a call could not finish, as one rank noticed it.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The job has failed.
    Verdict(Arc<Verdict>),
    /// A link failed.
    Link(LinkError),
    /// A peer is in another call.
    Foreign(Rank),
    /// The call's time is up.
    Overdue,
}

impl From<LinkError> for CallError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}
