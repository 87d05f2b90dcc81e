//! The conditions of a proof, and the flaws that it finds.

use alloc::vec::Vec;
use core::fmt;

use ringfold_types::{Rank, Slice};

/// The conditions of a proof.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Bytes that a link accepts ahead of its receiver.
    pub window_bytes: usize,
    /// Whether a link accepts the rest of a longer message only when the receiver has taken it
    /// (rendezvous).
    pub offers: bool,
}

/// A flaw of a set of schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// These ranks wait for ever.
    Deadlock {
        /// Rank, lane and index of the operation of its program that it is at.
        waiting: Vec<(Rank, usize, usize)>,
    },
    /// A rank expected elements in another form than their sender used.
    Form {
        /// The receiver.
        rank: Rank,
        /// The sender.
        from: Rank,
    },
    /// A rank read elements that were never written, or that the output has overwritten in place.
    Unwritten {
        /// The reader.
        rank: Rank,
        /// The elements that it read.
        slice: Slice,
    },
    /// A result would contain an input twice.
    Twice {
        /// The rank that combines.
        rank: Rank,
        /// The elements that it was writing.
        slice: Slice,
    },
    /// A scan would combine inputs in another order than that of the ranks.
    Order {
        /// The rank that combines.
        rank: Rank,
        /// The elements that it was writing.
        slice: Slice,
    },
    /// A finished result was combined with other values, or elements of different places were
    /// combined.
    Mixed {
        /// The rank that combines.
        rank: Rank,
        /// The elements that it was writing.
        slice: Slice,
    },
    /// An element of the output is not what the collective promises.
    Result {
        /// The rank of the output.
        rank: Rank,
        /// The first wrong element.
        index: usize,
    },
    /// An element of the output is the right sum. But a rank has combined its inputs in another
    /// order than rank 0, so the last bits of the two may differ.
    Bits {
        /// The rank of the output.
        rank: Rank,
        /// The first element that differs.
        index: usize,
    },
    /// Elements were sent and never received.
    Unreceived {
        /// The rank that did not receive them.
        rank: Rank,
        /// The sender.
        from: Rank,
    },
    /// A slice lies outside its buffer, or in both halves of the staging buffer, or is in another
    /// rank's scratch. Or a local source overlaps its destination in part.
    Bounds {
        /// The rank that uses the slice.
        rank: Rank,
        /// The slice.
        slice: Slice,
    },
    /// Two ranks, or two lanes, use the same elements, at least one of them writes, and no message
    /// orders the accesses.
    Race {
        /// The rank whose access came second in this run.
        rank: Rank,
        /// The owner of the memory. If it equals `rank`, its user came second, after the call.
        of: Rank,
        /// The elements that `rank` used; empty for its user.
        slice: Slice,
    },
    /// A rank flips or swaps staging buffers and rank 0 does not, or the other way round. Or ranks
    /// swap staging buffers, and they are not two.
    Swap {
        /// The rank that differs from rank 0, or the rank that swaps.
        rank: Rank,
    },
    /// A rank signals although no rank reads another's memory, or in a schedule of several lanes.
    /// Or it signals so early that a signal would overwrite one that some rank has not seen
    /// (`limits::SIGNALS_MAX`). Or more than half as many signals may be unseen when its call ends.
    Signal {
        /// The rank that signals.
        rank: Rank,
    },
    /// A rank uses memory in which it has announced to receive elements, or receives them
    /// elsewhere.
    Expected {
        /// The rank that uses the memory.
        rank: Rank,
        /// The elements that it uses.
        slice: Slice,
    },
    /// A message in a schedule whose messages order accesses to shared memory: it is not scratch,
    /// or a link might not accept it at once. Then its time of departure, and its content, could
    /// vary from run to run.
    Token {
        /// The sender.
        rank: Rank,
        /// The elements that it sends.
        slice: Slice,
    },
    /// A rank finds elements or a signal of another call of the sequence.
    Foreign {
        /// The receiver.
        rank: Rank,
        /// The sender.
        from: Rank,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock { waiting } => {
                write!(f, "these operations wait for ever:")?;
                waiting.iter().take(8).try_for_each(|(rank, lane, step)| {
                    write!(f, " rank {rank} lane {lane} operation {step};")
                })
            }
            Self::Form { rank, from } => {
                write!(f, "rank {rank} expects another form than rank {from} sends")
            }
            Self::Unwritten { rank, slice } => write!(f, "rank {rank} reads unwritten {slice}"),
            Self::Twice { rank, slice } => {
                write!(f, "rank {rank} combines an input twice in {slice}")
            }
            Self::Order { rank, slice } => {
                write!(f, "rank {rank} combines inputs out of rank order in {slice}")
            }
            Self::Mixed { rank, slice } => {
                write!(f, "rank {rank} combines finished or misplaced values in {slice}")
            }
            Self::Result { rank, index } => {
                write!(f, "rank {rank} has a wrong result in out[{index}]")
            }
            Self::Bits { rank, index } => {
                write!(f, "rank {rank} combines out[{index}] in another order than rank 0")
            }
            Self::Unreceived { rank, from } => {
                write!(f, "rank {rank} never receives elements of rank {from}")
            }
            Self::Bounds { rank, slice } => {
                write!(f, "rank {rank} uses {slice}, which is out of bounds")
            }
            Self::Race { rank, of, slice } if slice.len == 0 => {
                write!(f, "rank {rank} leaves while others may use memory of rank {of}")
            }
            Self::Race { rank, of, slice } => {
                write!(f, "no message orders rank {rank}'s use of {slice} of rank {of}")
            }
            Self::Swap { rank } => {
                write!(f, "rank {rank} flips or swaps staging buffers unlike rank 0")
            }
            Self::Signal { rank } => write!(f, "rank {rank} sends a signal that may go unseen"),
            Self::Expected { rank, slice } => {
                write!(f, "rank {rank} uses {slice}, where others may write")
            }
            Self::Foreign { rank, from } => {
                write!(f, "rank {rank} finds elements or a signal of another call of rank {from}")
            }
            Self::Token { rank, slice } => {
                write!(f, "rank {rank} sends {slice} as a token, which may have to wait")
            }
        }
    }
}

impl core::error::Error for Flaw {}
