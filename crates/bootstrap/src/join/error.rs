//! Why the ranks did not come together.

use std::io;
use std::time::Duration;

use ringfold_types::{Rank, limits};

use crate::secret::WAYS_TO_SHARE;
use crate::verdict::RankList;

/// Why the ranks did not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Some ranks did not come.
    #[error("{} of {size} ranks joined within {timeout:?}; missing: {}{}{turned_away}",
        size - missing.len(), RankList(missing), if turned_away.is_empty() { "" } else { "; " })]
    Missing {
        /// How many ranks there should be.
        size: usize,
        /// Those that did not come.
        missing: Vec<Rank>,
        /// How long rank 0 waited.
        timeout: Duration,
        /// Connections that rank 0 turned away, why, and what to do; empty if they explain nothing.
        turned_away: String,
    },
    /// Rank 0 was not found.
    #[error("rank {rank} did not find rank 0 at {place} within {timeout:?}: {cause}")]
    NoHub {
        /// This rank.
        rank: Rank,
        /// Where it looked.
        place: String,
        /// How long.
        timeout: Duration,
        /// What happened at the last attempt.
        cause: String,
    },
    /// Rank 0, or the launcher, holds another secret.
    #[error("rank {rank} did not join: {place} holds another secret; {WAYS_TO_SHARE}")]
    WrongSecret {
        /// This rank.
        rank: Rank,
        /// The peer that holds another.
        place: String,
    },
    /// The name of rank 0's host, or of the launcher's, has no address.
    #[error(
        "rank {rank} cannot resolve the host name {host:?}, which comes from {named_by}, within \
         {timeout:?}: {source}; correct the name, or give an address"
    )]
    UnknownHost {
        /// This rank.
        rank: Rank,
        /// The name.
        host: String,
        /// The variable that it comes from.
        named_by: String,
        /// How long the rank tried.
        timeout: Duration,
        /// The resolver's error.
        source: io::Error,
    },
    /// Rank 0 speaks another version of the protocol.
    #[error(
        "{place} speaks version {theirs} of the control protocol, rank {rank} version {ours}: \
         start every rank with the same ringfold"
    )]
    Version {
        /// This rank.
        rank: Rank,
        /// Who speaks another.
        place: String,
        /// The version of this rank.
        ours: u16,
        /// The version of rank 0.
        theirs: u16,
    },
    /// Rank 0 has another idea of how many ranks there are.
    #[error("rank {rank} was started as one of {ours} ranks, {place} as one of {theirs}")]
    SizeMismatch {
        /// This rank.
        rank: Rank,
        /// Who has another idea.
        place: String,
        /// The size for this rank.
        ours: u32,
        /// The size for rank 0.
        theirs: u32,
    },
    /// Another process already is this rank.
    #[error("another process has joined as rank {rank} already")]
    Duplicate {
        /// This rank.
        rank: Rank,
    },
    /// The launcher gave a rank that is not below the size, or too many ranks.
    #[error(
        "rank {rank} of {size} is no rank: ranks are 0..size, and size at most {}",
        limits::RANKS_MAX
    )]
    Invalid {
        /// This rank.
        rank: Rank,
        /// How many ranks there should be.
        size: usize,
    },
    /// The card is too long.
    #[error("a card of {bytes} bytes is too long: {} at most", limits::CARD_BYTES_MAX)]
    CardTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A rank joined and went away before all were there.
    #[error("rank {rank} joined and went away before every rank was there")]
    Lost {
        /// The one that went away.
        rank: Rank,
    },
    /// The connection to rank 0 broke before every rank was there.
    #[error("rank {rank} lost its connection to rank 0 before every rank was there: {cause}")]
    HubLost {
        /// This rank.
        rank: Rank,
        /// What happened.
        cause: String,
    },
    /// The job failed after every rank had come, and before this one knew all of them.
    #[error("rank {rank} was about to know every rank when the job failed: {verdict}")]
    Failed {
        /// This rank.
        rank: Rank,
        /// The verdict in words.
        verdict: String,
    },
    /// Rank 0 may not open as many files as it needs.
    #[error(
        "rank 0 needs {needed} file descriptors to connect {size} ranks, and its limit is {limit} \
         (RLIMIT_NOFILE, the hard one): raise it where the job is started, as by `ulimit -Hn \
         {needed}`, LimitNOFILE= of a service, or /etc/security/limits.conf"
    )]
    Descriptors {
        /// How many ranks there are.
        size: usize,
        /// Descriptors that rank 0 needs.
        needed: u64,
        /// Descriptors that it may have.
        limit: u64,
    },
    /// Rank 0 cannot listen.
    #[error("rank 0 cannot listen on {place}: {source}")]
    Listen {
        /// Where.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// The launcher takes no more communicators of this job.
    #[error(
        "{} communicators of this job are there already; let some leave before making the next",
        limits::HUBS_MAX
    )]
    TooMany,
    /// The launcher's key-value space failed.
    #[error("the launcher's key-value space (PMI-1) failed: {0}")]
    Pmi(#[from] crate::pmi::PmiError),
    /// The system refused a thread, a socket or a file descriptor.
    #[error("rank {rank} cannot {action}: {source}")]
    System {
        /// This rank.
        rank: Rank,
        /// What for.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
