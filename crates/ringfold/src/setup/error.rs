//! Why ranks do not come together.

use std::fmt;
use std::io;

use ringfold_bootstrap::interface::ChooseError;
use ringfold_bootstrap::{DiscoverError, ExchangeError, JoinError, RankList, SecretError};
use ringfold_topology::discover::files;
use ringfold_transport::{rdma, shm, tcp};
use ringfold_types::Rank;

/// Why the ranks could not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The launcher's variables are incomplete or make no sense.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// There is no usable secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The ranks did not meet.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The info of a rank makes no sense.
    #[error("rank {rank}: {source}")]
    PeerInfo {
        /// The rank that said it.
        rank: Rank,
        /// What is wrong with it.
        source: UnreadablePeerInfo,
    },
    /// The ranks have different settings where they must have the same.
    #[error(transparent)]
    Settings(#[from] DifferentSettings),
    /// The description of the fabric cannot be used.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A rank's evidence of the fabric makes no sense.
    #[error("rank {rank}: {source}")]
    Evidence {
        /// Whose evidence.
        rank: Rank,
        /// What is wrong with it.
        source: UnreadableEvidence,
    },
    /// The ranks could not tell each other what they know of the fabric.
    #[error("rank {rank}: the exchange of evidence of the fabric failed: {source}")]
    Exchange {
        /// This rank.
        rank: Rank,
        /// What went wrong.
        source: ExchangeError,
    },
    /// The network interfaces cannot be listed.
    #[error("cannot list this host's network interfaces: {0}")]
    Interfaces(io::Error),
    /// No network interface may be used.
    #[error("no network interface to use: {0}")]
    Interface(#[from] ChooseError),
    /// TCP cannot listen.
    #[error("rank {rank}: {source}")]
    Listen {
        /// This rank.
        rank: Rank,
        /// What went wrong.
        source: tcp::ListenError,
    },
    /// TCP cannot use the other ranks' addresses.
    #[error(transparent)]
    Tcp(#[from] tcp::ConnectError),
    /// Shared memory cannot be set up.
    #[error("rank {rank}: shared memory: {source}; RINGFOLD_TRANSPORT=tcp does without")]
    Shm {
        /// This rank.
        rank: Rank,
        /// What went wrong.
        source: shm::ConnectError,
    },
    /// Nothing but RDMA may be used, and there is none.
    #[error("rank {rank}: {source}, and RINGFOLD_TRANSPORT allows nothing else")]
    Rdma {
        /// This rank.
        rank: Rank,
        /// What is missing.
        source: rdma::Unusable,
    },
    /// No transport that both ranks allow leads from one to the other.
    #[error(
        "rank {rank} cannot reach rank {peer}: they are on {}, and RINGFOLD_TRANSPORT leaves none \
         that both use{}{rdma}",
        if *.same_host { "one host" } else { "different hosts" },
        if .rdma.is_empty() { "" } else { "; " }
    )]
    Unreachable {
        /// This rank.
        rank: Rank,
        /// The other.
        peer: Rank,
        /// Whether they could share memory.
        same_host: bool,
        /// Why they have no RDMA in common, if one of them has some; else empty.
        rdma: String,
    },
    /// The system has no file descriptors left.
    #[error("no file descriptor left ({0}); raise the limit with `ulimit -n`")]
    Descriptors(io::Error),
}

/// These bytes are not the info of a rank of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its card cannot be read; do all ranks run the same version of ringfold?")]
pub struct UnreadablePeerInfo;

/// These bytes are not the evidence of a rank of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its evidence of the fabric cannot be read; do all ranks run the same version of ringfold?"
)]
pub struct UnreadableEvidence;

/// The file that `RINGFOLD_TOPO_FILE` names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("RINGFOLD_TOPO_FILE: {0}; RINGFOLD_TOPO=off does without")]
pub struct TopologyError(#[from] files::Error);

/// Settings that must be the same on all ranks, and are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ranks differ in {name}: {}; give all of them the same", Said(said))]
pub struct DifferentSettings {
    /// The variable.
    pub name: &'static str,
    /// Each value, and the ranks that have it.
    pub said: Vec<(String, Vec<Rank>)>,
}

struct Said<'a>(&'a [(String, Vec<Rank>)]);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (value, ranks)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let have = if ranks.len() == 1 { "has" } else { "have" };
            write!(f, "{comma}{} {have} {value}", RankList(ranks))?;
        }
        Ok(())
    }
}
