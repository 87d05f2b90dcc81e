//! The events, the CPUs whose time they take, and the reasons why they end too soon.

use std::cmp::Ordering;
use std::error;
use std::fmt;

use ringfold_types::Rank;

/// An event. Those of one time happen in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Bytes of a connection have arrived.
    Arrived(usize, usize),
    /// A signal of a rank and a lane can be seen.
    Signalled(Rank, usize),
    /// The bytes of a flow have left.
    Left(usize),
    /// A rank can go on.
    Woken(Rank),
}

impl Event {
    const fn order(self) -> (u8, usize, usize) {
        match self {
            Self::Arrived(connection, bytes) => (0, connection, bytes),
            Self::Signalled(rank, lane) => (1, rank.index(), lane),
            Self::Left(flow) => (2, flow, 0),
            Self::Woken(rank) => (3, rank.index(), 0),
        }
    }
}

/// An event at a time. The earliest one is the greatest, as a heap wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) at: u64,
    pub(crate) event: Event,
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.event.order()).cmp(&(self.at, self.event.order()))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
