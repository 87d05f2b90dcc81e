//! Errors of joining a group.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ringfold_bootstrap::interface::ChooseError;
use ringfold_bootstrap::{
    DiscoverError, ExchangeError, FailureCause, JoinError, NotAdmitted, RankList, SecretError,
};
use ringfold_topology::discover::files;
use ringfold_topology::statement::UnreadableEvidence;
use ringfold_transport::{rdma, shm, tcp};
use ringfold_types::Rank;

use crate::config::InvalidProfile;

/// The reason why the ranks could not form a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The launcher's variables are incomplete or invalid.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// There is no usable secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The ranks did not meet.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A rank sent information about itself that this rank cannot read.
    #[error("rank {rank} sent information about itself that cannot be read")]
    PeerInfo {
        /// The sender.
        rank: Rank,
        /// The reason.
        source: UnreadablePeerInfo,
    },
    /// The ranks have different settings where they need the same.
    #[error(transparent)]
    Settings(#[from] DifferentSettings),
    /// The description of the fabric cannot be used.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Rank 0 cannot use the profile of prices that `RINGFOLD_PRICES` names. All ranks get this
    /// error.
    #[error("on rank 0, {reason}")]
    Prices {
        /// The reason.
        reason: String,
    },
    /// Rank 0 sent a profile of prices that this rank cannot read.
    #[error("rank 0 sent a profile of prices that cannot be read")]
    Profile(#[source] InvalidProfile),
    /// A rank sent evidence of the fabric that this rank cannot read.
    #[error("rank {rank} sent evidence of the fabric that cannot be read")]
    Evidence {
        /// The sender.
        rank: Rank,
        /// The reason.
        source: UnreadableEvidence,
    },
    /// The ranks could not exchange their evidence of the fabric.
    #[error("rank {rank} could not exchange evidence of the fabric with the other ranks")]
    Exchange {
        /// This rank.
        rank: Rank,
        /// The reason.
        source: ExchangeError,
    },
    /// The ranks could not compare their clocks for a trace.
    #[error("cannot compare clocks with rank {peer} for RINGFOLD_TRACE: {reason}")]
    Clock {
        /// The other rank.
        peer: Rank,
        /// The reason.
        reason: String,
    },
    /// In-network reduction is required, and an aggregator grants no group. All ranks get this
    /// error.
    #[error("RINGFOLD_INNETWORK=require cannot be met: {reason}")]
    InNetwork {
        /// The reason.
        reason: String,
    },
    /// `RINGFOLD_AGGREGATORS` names no aggregators: neither a list nor a tree file. All ranks get
    /// this error.
    #[error("RINGFOLD_AGGREGATORS: {reason}")]
    Aggregators {
        /// The reason.
        reason: String,
    },
    /// Rank 0 sent answers of aggregators that this rank cannot read.
    #[error(
        "rank 0 sent answers of aggregators that cannot be read; start every rank with the same \
         version of ringfold"
    )]
    Grants,
    /// The network interfaces cannot be listed.
    #[error("cannot list this host's network interfaces")]
    Interfaces(#[source] io::Error),
    /// The settings leave no network interface.
    #[error("no network interface to use")]
    Interface(#[from] ChooseError),
    /// TCP cannot listen.
    #[error("rank {rank} cannot listen for its peers by TCP")]
    Listen {
        /// This rank.
        rank: Rank,
        /// The reason.
        source: tcp::ListenError,
    },
    /// TCP cannot use the other ranks' addresses.
    #[error(transparent)]
    Tcp(#[from] tcp::ConnectError),
    /// The job failed before this rank was connected to all others.
    #[error("the job failed while rank {rank} connected to the others: {cause}")]
    Failed {
        /// This rank.
        rank: Rank,
        /// The cause.
        cause: Arc<FailureCause>,
    },
    /// Shared memory cannot be set up.
    #[error("rank {rank} cannot set up shared memory (RINGFOLD_TRANSPORT=tcp avoids it)")]
    Shm {
        /// This rank.
        rank: Rank,
        /// The reason.
        source: shm::ConnectError,
    },
    /// The settings allow nothing but RDMA, and this host has no usable RDMA port.
    #[error("rank {rank} cannot use RDMA, and RINGFOLD_TRANSPORT allows nothing else")]
    Rdma {
        /// This rank.
        rank: Rank,
        /// The reason.
        source: rdma::Unusable,
    },
    /// A setting names what no RDMA port of this host has.
    #[error(
        "rank {rank} cannot use RDMA by its settings; name what a port has, or leave rdma out of \
         RINGFOLD_TRANSPORT"
    )]
    RdmaSetting {
        /// This rank.
        rank: Rank,
        /// The reason.
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
        /// The peer.
        peer: Rank,
        /// Whether the two ranks are on one host.
        same_host: bool,
        /// The reason why the two have no RDMA network in common; empty if neither has RDMA.
        rdma: String,
    },
    /// Two ranks have no addresses by which they reach each other.
    #[error(
        "rank {rank} (host {host}) and rank {peer} (host {peer_host}) have no addresses to reach \
         each other: rank {rank} has {own}, rank {peer} has {theirs}; give both hosts addresses \
         of one family that no other host has, on interfaces that are up and that \
         RINGFOLD_SOCKET_IFNAME allows"
    )]
    NoAddress {
        /// This rank.
        rank: Rank,
        /// The name of its host.
        host: String,
        /// Its addresses, with interfaces and the reasons against them.
        own: String,
        /// The peer.
        peer: Rank,
        /// The name of the peer's host.
        peer_host: String,
        /// The addresses of the peer.
        theirs: String,
    },
    /// The caller's key-value store failed, or has no value in time.
    #[error(
        "rank {rank} cannot {action} the key {key:?} of the caller's key-value store{}",
        if *.action == "wait for" { "; rank 0 sets it when it joins by the same store" } else { "" }
    )]
    Store {
        /// This rank.
        rank: Rank,
        /// The action that failed: `get`, `set`, `wait for` or `read`.
        action: &'static str,
        /// The key.
        key: String,
        /// The error of the store, or of the value.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The group did not admit this process.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// The launcher knows no group that takes newcomers.
    #[error("no group takes this process in: {reason}")]
    NoDoor {
        /// The reason.
        reason: String,
    },
    /// Rank 0 cannot open a door for newcomers. All ranks get this error.
    #[error("rank 0 cannot open a door for newcomers: {reason}")]
    Door {
        /// The reason.
        reason: String,
    },
    /// Rank 0 sent a message about the growth of the group that this rank cannot read.
    #[error(
        "rank 0 sent a message about newcomers that cannot be read; all ranks must call the same \
         method"
    )]
    Growth,
    /// This rank cannot listen for the members of a group.
    #[error("cannot listen for the members of a group")]
    GroupPort(#[source] io::Error),
    /// Rank 0 of a group cannot listen for the other members.
    #[error(
        "rank {rank} of the parent group, which is rank 0 of this one, cannot listen for the \
             members; its log says why"
    )]
    GroupWithoutPort {
        /// The rank in the parent group.
        rank: Rank,
    },
    /// No unique id can be made.
    #[error("cannot make a unique id")]
    UniqueId(#[source] io::Error),
    /// Rank 0 cannot listen on the port of a unique id.
    #[error(
        "rank 0 cannot listen on {address}, the port of the unique id; make an id in the process \
         of rank 0, one for each communicator"
    )]
    IdPort {
        /// The address in the id.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no file descriptors left.
    #[error("this process has no file descriptor left; raise the limit with `ulimit -n`")]
    Descriptors(#[source] io::Error),
}

impl InitError {
    /// Whether all members of the group have this same error, as they decide by the same facts.
    pub(super) const fn is_common(&self) -> bool {
        matches!(
            self,
            Self::Settings(_)
                | Self::Prices { .. }
                | Self::Profile(_)
                | Self::Aggregators { .. }
                | Self::InNetwork { .. }
        )
    }
}

/// These bytes are not the information of a rank of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not of this version; start every rank with the same version of ringfold")]
pub struct UnreadablePeerInfo;

/// The file that `RINGFOLD_TOPO_FILE` names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("RINGFOLD_TOPO_FILE cannot be used (RINGFOLD_TOPO=off ignores it)")]
pub struct TopologyError(#[from] files::Error);

/// Ranks that have different values of a setting in which all must agree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ranks differ in {name}: {}; give all of them the same", ValueList(values))]
#[non_exhaustive]
pub struct DifferentSettings {
    /// The variable.
    pub name: &'static str,
    /// Each value, and the ranks that have it.
    pub values: Vec<(String, Vec<Rank>)>,
}

struct ValueList<'a>(&'a [(String, Vec<Rank>)]);

impl fmt::Display for ValueList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (value, ranks)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let have = if ranks.len() == 1 { "has" } else { "have" };
            write!(f, "{comma}{} {have} {value}", RankList(ranks))?;
        }
        Ok(())
    }
}
