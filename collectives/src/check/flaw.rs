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
    /// Whether a link accepts what is left of a longer message only when the receiver has taken it.
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
    /// A rank expected elements in another form than they were sent in.
    Form {
        /// The receiver.
        rank: Rank,
        /// The sender.
        from: Rank,
    },
    /// A rank read what was never written, or was overwritten by the output in place.
    Unwritten {
        /// The reader.
        rank: Rank,
        /// The elements that it read.
        slice: Slice,
    },
    /// An input went into the same result twice.
    Twice {
        /// Where.
        rank: Rank,
        /// The elements that it was writing.
        slice: Slice,
    },
    /// A result was combined with others after it was finished, or elements of different inputs'
    /// places were combined.
    Mixed {
        /// Where.
        rank: Rank,
        /// The elements that it was writing.
        slice: Slice,
    },
    /// An element of the output is not what the collective promises.
    Result {
        /// Whose output.
        rank: Rank,
        /// The first wrong element.
        index: usize,
    },
    /// An element of the output is the right sum, but a rank has combined its inputs in another
    /// order than rank 0, so the two may differ in their last bits.
    Bits {
        /// Whose output.
        rank: Rank,
        /// The first element that differs.
        index: usize,
    },
    /// Elements were sent that nobody received.
    Unreceived {
        /// The receiver that did not.
        rank: Rank,
        /// The sender.
        from: Rank,
    },
    /// A slice lies outside its buffer, or in both halves of the stage, or is of another rank's
    /// scratch, or a local source overlaps its destination in part.
    Bounds {
        /// Where.
        rank: Rank,
        /// The slice.
        slice: Slice,
    },
    /// Two ranks, or two lanes, use the same elements, one of them to write, and no message orders
    /// that.
    Race {
        /// The rank that came second here.
        rank: Rank,
        /// Whose memory it is. That rank, if it is its user who came second, after the call.
        of: Rank,
        /// What `rank` was using; nothing if it was the user.
        slice: Slice,
    },
    /// Of two ranks one lets the halves of its stage change places, or trades it, and the other
    /// does not; or there are not two who trade.
    Turn {
        /// The rank that differs from rank 0, or would trade.
        rank: Rank,
    },
    /// A rank tells where nobody reaches into another's memory, or in one of several lanes, or
    /// before all have heard what this takes the place of (`limits::TELLS_MAX`); or half as many
    /// tells may be left unheard when its call ends.
    Tell {
        /// The teller.
        rank: Rank,
    },
    /// A message that a link might not accept at once, or that is no scratch, in a schedule whose
    /// messages order how ranks use each other's memory. Then the time at which it leaves, and its
    /// content, could vary from run to run.
    Token {
        /// The sender.
        rank: Rank,
        /// The elements that it sends.
        slice: Slice,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock { waiting } => {
                write!(f, "these wait for ever:")?;
                waiting.iter().take(8).try_for_each(|(rank, lane, step)| {
                    write!(f, " rank {rank} lane {lane} operation {step};")
                })
            }
            Self::Form { rank, from } => write!(f, "rank {rank} expects another form from {from}"),
            Self::Unwritten { rank, slice } => write!(f, "rank {rank} reads unwritten {slice}"),
            Self::Twice { rank, slice } => write!(f, "rank {rank} counts twice in {slice}"),
            Self::Mixed { rank, slice } => write!(f, "rank {rank} mixes in {slice}"),
            Self::Result { rank, index } => write!(f, "rank {rank} has a wrong out[{index}]"),
            Self::Bits { rank, index } => {
                write!(f, "rank {rank} combines out[{index}] in another order than rank 0")
            }
            Self::Unreceived { rank, from } => write!(f, "rank {rank} leaves bytes of {from}"),
            Self::Bounds { rank, slice } => write!(f, "rank {rank} has {slice} out of bounds"),
            Self::Race { rank, of, slice } if slice.len == 0 => {
                write!(f, "rank {rank} leaves while others use memory of rank {of}")
            }
            Self::Race { rank, of, slice } => {
                write!(f, "rank {rank} uses {slice} of rank {of} unordered with another")
            }
            Self::Turn { rank } => write!(f, "rank {rank} and rank 0 turn their stages otherwise"),
            Self::Tell { rank } => write!(f, "rank {rank} tells what may go unheard"),
            Self::Token { rank, slice } => write!(f, "rank {rank} sends {slice}, which may wait"),
        }
    }
}

impl core::error::Error for Flaw {}
