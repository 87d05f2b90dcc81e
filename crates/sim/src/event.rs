//! The events, the CPUs whose time they take, and the reasons why they end too soon.

use std::error;
use std::fmt;

use ringfold_types::Rank;

/// An event. Those of one time happen together, before ranks go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Bytes of a connection have arrived.
    Arrived(u32, usize),
    /// A signal of a rank and a lane can be seen.
    Signalled(Rank, u32),
    /// The bytes of a flow may have left: its share may have changed since.
    Left(u32),
    /// A rank can go on.
    Woken(Rank),
}

/// The reason why a call does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEnd {
    /// No way joins two ranks that exchange messages.
    Parted(Rank, Rank),
    /// This rank waits for ever. A proven schedule does not.
    Waiting(Rank),
    /// It takes more than 53 days.
    Late,
}

impl fmt::Display for NoEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parted(a, b) => write!(f, "no way through the fabric joins ranks {a} and {b}"),
            Self::Waiting(rank) => write!(f, "rank {rank} waits for ever"),
            Self::Late => {
                f.write_str("it takes more than 53 days; give fewer bytes or faster links")
            }
        }
    }
}

impl error::Error for NoEnd {}

/// A rank's CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Until then it is busy. After the call, the time at which its rank has ended.
    pub(crate) free: u64,
    pub(crate) busy_ps: u64,
    /// The lane whose turn it is.
    pub(crate) lane: usize,
}
