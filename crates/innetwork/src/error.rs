//! Errors of providers and groups.

use std::io;

/// The reason why a group cannot be used, or no longer. Calls can go on without the provider.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The provider refuses the group, or has ended it.
    #[error("the provider refused the group: {reason}")]
    Refused {
        /// The provider's reason.
        reason: String,
    },
    /// The other end speaks another version of the protocol.
    #[error("the aggregator speaks version {theirs} of the offload protocol, not {ours}")]
    Version {
        /// The version of this end.
        ours: u8,
        /// The version of the other end.
        theirs: u8,
    },
    /// The other end does not know the group's key.
    #[error("the aggregator did not prove that it knows the group's key")]
    Unproven,
    /// The other end broke the protocol.
    #[error("the provider broke the protocol: {0}")]
    Protocol(&'static str),
    /// The connection has ended.
    #[error("the provider closed the connection or its process ended")]
    Closed,
    /// The provider owes a result and has sent nothing for this long.
    #[error("the provider has sent nothing for {millis} ms")]
    Silent {
        /// The time of silence in milliseconds.
        millis: u64,
    },
    /// The member cannot connect to the provider.
    #[error("cannot connect to the provider at {at}: {source}")]
    Unreachable {
        /// The provider's address.
        at: String,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl OffloadError {
    /// An equal error, for every later call on a group that has failed.
    #[must_use]
    pub(super) fn again(&self) -> Self {
        let copy = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self {
            Self::Refused { reason } => Self::Refused { reason: reason.clone() },
            Self::Version { ours, theirs } => Self::Version { ours: *ours, theirs: *theirs },
            Self::Unproven => Self::Unproven,
            Self::Protocol(what) => Self::Protocol(what),
            Self::Closed => Self::Closed,
            Self::Silent { millis } => Self::Silent { millis: *millis },
            Self::Unreachable { at, source } => {
                Self::Unreachable { at: at.clone(), source: copy(source) }
            }
            Self::Io(error) => Self::Io(copy(error)),
        }
    }
}
