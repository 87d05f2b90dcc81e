//! What the launcher and the keeper of a host say to each other, and what the keeper tells a
//! trampoline. Text of the operating system (arguments, paths) travels as bytes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// What the job secret is made of.
pub(crate) const SECRET_BYTES: usize = 32;

/// From the launcher to a keeper. The end of the stream means the same as `End`, and that nobody
/// listens any more.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Down {
    /// First and once: what to run.
    Start(Box<HostOrder>),
    /// Input for rank 0. The next piece waits for `Up::InputTaken`.
    Input(Vec<u8>),
    /// Rank 0's input has ended.
    InputEnd,
    /// Send this signal to the process group of every rank that still runs.
    Signal(i32),
    /// Kill every process that descends from this keeper.
    Kill,
    /// The job is over: kill whatever is left, report the rest, then go.
    End,
    /// The launcher lives.
    Beat,
}

/// From a keeper to the launcher.
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
    /// A rank could not be started; none that was is left running.
    Refused { rank: u32, refusal: Refusal },
    /// The keeper ends its ranks, though the launcher did not ask for it.
    Leaving { why: String },
    /// The keeper lives.
    Beat,
}

/// One of the two streams that a rank writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Out,
    Err,
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

/// What a trampoline that cannot become its rank writes to its standard output, before a `Refusal`.
pub(crate) const REFUSAL_MARK: &[u8] = b"\n\x01ringfold refusal\n";

/// Why a host could not start a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such file, or none in PATH.
    #[error("program '{0}' not found")]
    NotFound(String),
    /// There is a file, but it cannot be executed.
    #[error("program '{program}' cannot be executed: {error}")]
    NotExecutable {
        /// The program as it was named.
        program: String,
        /// What the operating system says.
        error: String,
    },
    /// The working directory is missing there.
    #[error("working directory '{0}' does not exist; say --wdir DIR")]
    Directory(String),
    /// The operating system had no process, pipe, core or memory for it.
    #[error("{0}")]
    System(String),
}

/// Whether ranks are tied to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Bind {
    /// Ranks run wherever the host lets them.
    None,
    /// Each rank has as many of the cores that the host allows, at least one; or each core as many
    /// ranks, if these can be dealt evenly and no quota limits the cores; else as `None`. A rank's
    /// threads are free within its share. Its cores are of one NUMA node where that is possible,
    /// near its GPU (of `CUDA_VISIBLE_DEVICES`, or the one with its number among the host's), or
    /// else near the RDMA NIC that it prefers. `RINGFOLD_TOPO=off` leaves cores in order.
    #[default]
    Share,
    /// Each rank has one of the cores that the host allows, in turn.
    Core,
}

/// Everything that one host needs to know of the job.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostOrder {
    pub(crate) job: String,
    pub(crate) secret: Zeroizing<[u8; SECRET_BYTES]>,
    pub(crate) rendezvous: String,
    pub(crate) size: u32,
    /// Ranks of this host in the order of their local ranks.
    pub(crate) ranks: Vec<u32>,
    pub(crate) program: Vec<u8>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) wdir: Vec<u8>,
    pub(crate) bind: Bind,
    /// How long either end may be silent, where the connection can be cut without a word.
    pub(crate) silence: Option<Duration>,
}

/// What a trampoline needs to know to become a rank; the rest it inherits.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankOrder {
    /// The process that must be the trampoline's parent, else the job is gone already.
    pub(crate) keeper: u32,
    pub(crate) secret: Zeroizing<[u8; SECRET_BYTES]>,
    /// The CPUs that it may use; none for all that its keeper may use.
    pub(crate) cpus: Vec<u16>,
    pub(crate) program: Vec<u8>,
    pub(crate) args: Vec<Vec<u8>>,
    /// Whether standard input, once this order is read, belongs to the rank.
    pub(crate) input: bool,
}

impl std::fmt::Debug for HostOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostOrder").field("job", &self.job).field("ranks", &self.ranks).finish()
    }
}
