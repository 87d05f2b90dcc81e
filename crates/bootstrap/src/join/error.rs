//! Why the ranks did not all join.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};

use crate::arbiter::failure_cause::{FailureCause, Listed, ListedRanks};
use crate::discover::secret::WAYS_TO_SHARE;

/// Why the ranks did not all join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Some ranks did not join.
    #[error("{} of {size} ranks joined within {timeout:?}; missing: {}{}{turned_away}",
        size.saturating_sub(missing.len() + missing.others()), ListedRanks(missing),
        if turned_away.is_empty() { "" } else { "; " })]
    Missing {
        /// The number of ranks in the job.
        size: usize,
        /// The missing ranks.
        missing: Listed<Rank>,
        /// How long rank 0 waited.
        timeout: Duration,
        /// The connections that rank 0 rejected, why, and what to do. Empty if they explain
        /// nothing.
        turned_away: String,
    },
    /// Rank 0 was not found.
    #[error("rank {rank} did not find rank 0 at {place} within {timeout:?}: {cause}")]
    NoCoordinator {
        /// This rank.
        rank: Rank,
        /// The address where it looked.
        place: String,
        /// How long it looked.
        timeout: Duration,
        /// The most telling cause of a failed attempt.
        cause: String,
    },
    /// Rank 0, or the launcher, holds another secret.
    #[error("rank {rank} did not join: {place} holds another secret; {WAYS_TO_SHARE}")]
    WrongSecret {
        /// This rank.
        rank: Rank,
        /// The peer that holds another secret.
        place: String,
    },
    /// The name of rank 0's host, or of the launcher's, has no address.
    #[error(
        "rank {rank} cannot resolve the host name {host:?}, which comes from {named_by}, within \
         {timeout:?} (correct the name, or give an address)"
    )]
    UnknownHost {
        /// This rank.
        rank: Rank,
        /// The name.
        host: String,
        /// The source of the name, such as a variable.
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
        /// The address of the peer that speaks another version.
        place: String,
        /// The version of this rank.
        ours: u16,
        /// The version of rank 0.
        theirs: u16,
    },
    /// Rank 0, or the launcher, was built from other sources.
    #[error(
        "{place} has build {theirs:016x} of ringfold, rank {rank} build {ours:016x}: start every \
         rank, and ringrun, with the same build"
    )]
    Build {
        /// This rank.
        rank: Rank,
        /// The address of the peer that has another build.
        place: String,
        /// The digest of the sources of this rank.
        ours: u64,
        /// The digest of the sources of the peer.
        theirs: u64,
    },
    /// Rank 0 was started with another number of ranks.
    #[error(
        "rank {rank} was started as one of {ours} ranks, {place} as one of {theirs}: \
         start all with the same number"
    )]
    SizeMismatch {
        /// This rank.
        rank: Rank,
        /// The address of the peer with another number.
        place: String,
        /// The number of ranks according to this rank.
        ours: u32,
        /// The number of ranks according to rank 0.
        theirs: u32,
    },
    /// Another process has already joined as this rank.
    #[error("another process has already joined as rank {rank}: give each process its own rank")]
    Duplicate {
        /// This rank.
        rank: Rank,
    },
    /// The launcher gave a rank that is not below the size, or a size that is too large.
    #[error(
        "rank {rank} of {size} is invalid: ranks are 0..size, and size is at most {}",
        limits::RANKS_MAX
    )]
    Invalid {
        /// This rank.
        rank: Rank,
        /// The number of ranks in the job.
        size: usize,
    },
    /// The peer information is too long.
    #[error(
        "peer information of {bytes} bytes is too long: at most {} are allowed",
        limits::PEER_INFO_BYTES_MAX
    )]
    PeerInfoTooLong {
        /// The length of the peer information.
        bytes: usize,
    },
    /// A rank joined and went away before all had joined.
    #[error("rank {rank} joined and went away before every rank had joined")]
    Lost {
        /// The rank that went away.
        rank: Rank,
    },
    /// Another rank cannot join, so the ranks stop waiting for it.
    #[error("rank {peer} cannot join: {reason}")]
    Peer {
        /// The rank that cannot join.
        peer: Rank,
        /// The reason.
        reason: String,
    },
    /// `ringrun` does not answer at its address.
    #[error(
        "rank {rank} cannot reach ringrun at {place} ({named_by}): {cause}{}",
        if *.is_elsewhere {
            "; the rank has a network of its own, as in a container, where that address leads to \
             the rank itself: share ringrun's network, or use an address that both reach \
             (`ringrun --rendezvous-addr`)"
        } else {
            ""
        }
    )]
    NoLauncher {
        /// This rank.
        rank: Rank,
        /// The address where the rank looked.
        place: String,
        /// The variable that names the address.
        named_by: String,
        /// The most telling cause of a failed attempt.
        cause: String,
        /// Whether the launcher listens in another network.
        is_elsewhere: bool,
    },
    /// A member has failed in the group whose ranks join, before all had joined.
    #[error("rank {rank} did not join, since the parent group has failed: {cause}")]
    ParentFailed {
        /// This rank.
        rank: Rank,
        /// The failure, with the ranks of the parent group.
        cause: Arc<FailureCause>,
    },
    /// A member has left the group whose ranks join, before all had joined.
    #[error("rank {rank} did not join, since rank {member} of the parent group has left it")]
    ParentLeft {
        /// This rank.
        rank: Rank,
        /// The rank of the parent group.
        member: Rank,
    },
    /// A member of a group that regroups after a failure gave up or keeps silent.
    #[error("rank {rank} did not join, since rank {member} of the old group gave up or is silent")]
    SeatLeft {
        /// This rank.
        rank: Rank,
        /// The rank of the old group.
        member: Rank,
    },
    /// The connection to rank 0 broke before every rank had joined.
    #[error("rank {rank} lost its connection to rank 0 before every rank had joined: {cause}")]
    CoordinatorLost {
        /// This rank.
        rank: Rank,
        /// The cause.
        cause: String,
    },
    /// The job failed after every rank had joined, and before this one had the peer information of
    /// all.
    #[error("the job failed before rank {rank} had the peer information of all ranks: {cause}")]
    Failed {
        /// This rank.
        rank: Rank,
        /// The failure cause as text.
        cause: String,
    },
    /// The limit of open files is too low for rank 0.
    #[error(
        "rank 0 needs {needed} file descriptors to connect {size} ranks, and its limit is {limit} \
         (RLIMIT_NOFILE, the hard one): raise it where the job is started, as by `ulimit -Hn \
         {needed}`, LimitNOFILE= of a service, or /etc/security/limits.conf"
    )]
    Descriptors {
        /// The number of ranks.
        size: usize,
        /// The number of descriptors that rank 0 needs.
        needed: u64,
        /// The number of descriptors that it may have.
        limit: u64,
    },
    /// Rank 0 cannot listen.
    #[error("rank 0 cannot listen on {place}")]
    Listen {
        /// The address.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The launcher accepts no more communicators of this job.
    #[error(
        "this job already has {} communicators; let some leave before making the next",
        limits::COORDINATORS_MAX
    )]
    TooMany,
    /// The launcher's key-value space failed.
    #[error("the launcher's key-value space (PMI-1) failed")]
    Pmi(#[from] crate::discover::pmi::error::PmiError),
    /// The system refused a thread, a socket or a file descriptor.
    #[error("rank {rank} cannot {action}")]
    System {
        /// This rank.
        rank: Rank,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ringfold_types::{Chain, InvalidHostList};

    use super::*;
    use crate::channel::greeting::HandshakeError;
    use crate::discover::pmi::error::PmiError;
    use crate::discover::secret::SecretError;
    use crate::discover::vars::DiscoverError;

    fn cause() -> io::Error {
        io::Error::other("the cause")
    }

    fn pmi() -> PmiError {
        PmiError::Io { command: "get".into(), source: cause() }
    }

    #[test]
    fn the_chain_of_an_error_names_each_cause_once() {
        let (rank, timeout, place) = (Rank(1), Duration::ZERO, String::from("a place"));
        let (host, named_by) = (place.clone(), place.clone());
        let variable = "SLURM_STEP_NODELIST";
        let list = InvalidHostList::Range("the cause".into());
        let errors: [Box<dyn Error>; 12] = [
            Box::new(JoinError::UnknownHost { rank, host, named_by, timeout, source: cause() }),
            Box::new(JoinError::Listen { place: place.clone(), source: cause() }),
            Box::new(JoinError::Pmi(pmi())),
            Box::new(JoinError::System { rank, action: "start a thread", source: cause() }),
            Box::new(SecretError::Unreadable { place: place.clone(), source: cause() }),
            Box::new(SecretError::Unwritable { path: place.clone().into(), source: cause() }),
            Box::new(SecretError::Pmi(pmi())),
            Box::new(DiscoverError::HostList { variable, value: place, source: list }),
            Box::new(DiscoverError::Socket { fd: 3, source: cause() }),
            Box::new(DiscoverError::Pmi(pmi())),
            Box::new(pmi()),
            Box::new(HandshakeError::Io(cause())),
        ];
        for error in &errors {
            let text = Chain(&**error).to_string();
            assert_eq!(text.matches("the cause").count(), 1, "{text}");
            assert!(text.matches("no answer to get").count() <= 1, "{text}");
            assert!(error.source().is_none() || !error.to_string().contains("the cause"), "{text}");
        }
    }
}
