//! The messages between the launcher and the node agent of a host, and from the node agent to a
//! trampoline. Text of the operating system (arguments, paths) travels as bytes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::stream::Stream;

/// The length of the job's secret.
pub(crate) const SECRET_BYTES: usize = 32;

/// A message from the launcher to a node agent. The end of the stream means the same as `End`, and
/// that nobody reads reports any more.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Down {
    /// The order to start ranks. It comes first and once.
    Start(Box<HostOrder>),
    /// Start a new process for this rank, whose process has ended, here or on another host. It
    /// joins the others.
    Restart(u32),
    /// Input for rank 0. The next piece waits for `Up::InputTaken`.
    Input(Vec<u8>),
    /// Rank 0's input has ended.
    InputEnd,
    /// Send this signal to the process group of every rank that still runs.
    Signal(i32),
    /// Kill every process that descends from this node agent.
    Kill,
    /// The job is over: kill the remaining processes, report the rest, then exit.
    End,
    /// The launcher lives.
    Heartbeat,
}

/// A message from a node agent to the launcher.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Up {
    /// A rank's process exists.
    Started { rank: u32, pid: u32 },
    /// Bytes that a rank wrote: whole lines, or a part of one that is long or unfinished.
    Output { rank: u32, stream: Stream, bytes: Vec<u8> },
    /// Rank 0's input has room for another piece.
    InputTaken,
    /// A rank ended. Its output may still follow.
    Exited { rank: u32, status: Status },
    /// A rank could not be started. At the start of the job the node agent has killed the others.
    Refused { rank: u32, refusal: Refusal },
    /// The node agent ends its ranks, although the launcher did not ask for it.
    Leaving { why: String },
    /// The node agent lives.
    Heartbeat,
    /// All ranks of the order have processes. The host takes further ones.
    Ready,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Status {
    /// It returned this exit status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// The bytes that a trampoline writes to its standard output before a `Refusal`, if it cannot
/// become its rank.
pub(crate) const REFUSAL_MARK: &[u8] = b"\n\x01ringfold refusal\n";

/// Why a host could not start a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such file, or none in PATH.
    #[error("program '{0}' not found")]
    NotFound(String),
    /// There is a file, but it cannot be executed.
    #[error("program '{program}' cannot be executed: {error}")]
    NotExecutable {
        /// The program as the user named it.
        program: String,
        /// The operating system's error.
        error: String,
    },
    /// The working directory does not exist there.
    #[error("working directory '{0}' does not exist; create it there, or pass --wdir DIR")]
    Directory(String),
    /// The operating system provided no process, pipe, core or memory for it.
    #[error("{0}")]
    System(String),
}

/// How ranks are bound to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Bind {
    /// Ranks run on all cores that the host allows.
    None,
    /// Each rank has an equal share of the cores that the host allows, at least one. If there are
    /// more ranks than cores, each core has an equal number of ranks. If no even division exists,
    /// or a quota limits the cores, this acts as `None`.
    ///
    /// A rank's threads may use its whole share. Where possible, the share lies in one NUMA node
    /// near the rank's GPU, or else near the RDMA NIC that it prefers. The GPU is that of
    /// `CUDA_VISIBLE_DEVICES`, or the host's GPU with the rank's number. With `RINGFOLD_TOPO=off`
    /// cores are divided in order.
    #[default]
    Share,
    /// Each rank has one of the cores that the host allows, in turn.
    Core,
}

/// The order to one host.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostOrder {
    pub(crate) job: String,
    pub(crate) secret: Zeroizing<[u8; SECRET_BYTES]>,
    pub(crate) rendezvous: String,
    pub(crate) size: u32,
    /// The number of this node agent.
    pub(crate) agent: u32,
    /// The ranks of this host in the order of their local ranks.
    pub(crate) ranks: Vec<u32>,
    /// How many ranks this host may have.
    pub(crate) slots: u32,
    pub(crate) program: Vec<u8>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) wdir: Vec<u8>,
    pub(crate) bind: Option<Bind>,
    /// How long either end may be silent, if the connection can break without notice.
    pub(crate) silence: Option<Duration>,
}

/// The order to a trampoline. It inherits everything else.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankOrder {
    /// The process that must be the trampoline's parent. Otherwise the job is gone already.
    pub(crate) node_agent: u32,
    pub(crate) secret: Zeroizing<[u8; SECRET_BYTES]>,
    /// The CPUs that it may use. An empty list means all of its node agent's.
    pub(crate) cpus: Vec<u16>,
    pub(crate) program: Vec<u8>,
    pub(crate) args: Vec<Vec<u8>>,
    /// Whether standard input, after this order, belongs to the rank.
    pub(crate) input: bool,
}

impl std::fmt::Debug for HostOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostOrder").field("job", &self.job).field("ranks", &self.ranks).finish()
    }
}
