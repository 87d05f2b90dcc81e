//! Proves that the schedules of all ranks, run together, do what their call promises.
//!
//! A *proof* is one symbolic run. Each rank's schedule is lowered to the program that a call would
//! run, fast forms included. The real `stepper` runs it, over memory that holds symbols in place of
//! numbers. A symbol is the set of inputs that went into an element, and
//! the order in which they were combined. So one run covers all input values. The sections below
//! say why it also covers every timing.
//!
//! # What is proven
//!
//! The claims hold for one call, layout and number of ranks under some [`Conditions`]. Each names
//! the [`Flaw`] that refutes it.
//!
//! * Every receive meets a send of the same length and form, and no element is left over (`Form`,
//!   `Unreceived`).
//! * No rank waits for ever (`Deadlock`).
//! * A result holds exactly the promised inputs, each once, and is rounded once (`Result`, `Twice`,
//!   `Mixed`).
//! * All ranks of an all-reduce combine an element's inputs in the same order, so they get the same
//!   bits (`Bits`).
//! * No step reads what was never written, or an input that the output has overwritten in place
//!   (`Unwritten`).
//! * A message that its sender offers stays as it is until its receiver has taken it (`Race`,
//!   `Result`).
//! * Messages and signals (`Step::Tell`, `Step::Hear`) order any two accesses to one element of
//!   which one writes (`Race`).
//! * All other ranks hear a signal once, before another takes its place (`Tell`, `Unreceived`).
//! * When the call ends, no rank uses the half of a stage that the next call writes first (`Race`,
//!   `Turn`).
//! * Every slice lies in its buffer (`Bounds`).
//!
//! A proof also measures the longest chain of messages, and the elements that the busiest rank
//! sends.
//!
//! # Why one run stands for every timing
//!
//! A lane performs its steps in program order. It waits for messages, for room in a link and for
//! signals, but no arrival changes the choice of its next step. A message goes from a lane to the
//! same lane of its receiver, and a link keeps its order. Processes of this kind give the same
//! results in every order of events if they share no memory (Kahn, 1974). An earlier message, or
//! more room, never stops a lane that could go on. So if one run ends, every run ends.
//!
//! Lanes do share memory. `races` gives each lane a vector clock that messages and signals advance,
//! and refuses two accesses that no clock orders. The clocks depend on the messages alone, so this
//! run shows every pair of accesses that could meet in any run. `races` watches:
//!
//! * windows and stages, among all lanes of all ranks;
//! * all buffers of a rank with several lanes, scratch included, among these lanes. No message
//!   leads from one lane to another, so no order between two lanes of a rank is ever known.
//!
//! # Why the same order gives the same bits
//!
//! A value carries a hash of the tree of operations that made it (`fold`). An input is a leaf. A
//! reduction adds an operator for each further source, from left to right. Division and rounding
//! are a node of their own, where they happen. Equal trees over equal inputs give equal bits.
//! Partial sums keep the accumulator's type: a proof refuses to combine a rounded value (`Mixed`).
//!
//! # What is assumed
//!
//! * **Kernels** combine sources from left to right in the accumulator's type. They give the same
//!   bits for a + b and b + a, and write the canonical NaN only. A change of form to the
//!   accumulator is exact. `crates/reduce/tests/axioms.rs` tests this for every type and operation.
//! * **Hashes.** Two different trees have the same 64 bits with a chance of 2^-64.
//! * **Links** keep order, deliver what they accept, and accept `window_bytes` before the receiver
//!   takes any. The conformance suite of `transport` tests this.
//! * **Memory.** The receiver of a message or a signal sees what its sender stored before.
//! * **Ports** do what an operation says. `tests/suite` compares results and bits on every transport
//!   with an oracle.
//! * **Other calls** keep the same rules about stages.
//!
//! `collectives/tests/proofs.rs` runs proofs for all numbers of ranks up to 64 and for some up to
//! 1,024. `collectives/tests/mutants` shows that the proofs refuse schedules with random faults,
//! unless no execution on real numbers fails.

mod access;
mod fold;
mod memory;
mod races;
mod result;
mod stream;
mod tells;
mod world;

use alloc::vec::Vec;
use core::fmt;

use ringfold_types::{Rank, Slice};

use crate::algorithm::Stated;
use crate::schedule::Schedule;
use world::World;

/// Under which conditions to run.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Bytes that a link accepts ahead of its receiver.
    pub window_bytes: usize,
    /// Whether a link accepts what is left of a longer message only when the receiver has taken it.
    pub offers: bool,
}

/// Proves the schedules of all ranks, given in rank order, and returns what they cost.
///
/// Time and memory grow with the steps of all ranks together, and with the square of the number of
/// ranks where they share memory, since each knows of each.
///
/// # Errors
/// The first flaw.
///
/// # Panics
/// If `schedules` is empty.
pub fn check(schedules: &[Schedule], conditions: Conditions) -> Result<Stated, Flaw> {
    World::new(schedules, conditions).run()
}

/// What is wrong with a set of schedules.
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
        /// What it read.
        slice: Slice,
    },
    /// An input went into the same result twice.
    Twice {
        /// Where.
        rank: Rank,
        /// What it was writing.
        slice: Slice,
    },
    /// A result was combined with others after it was finished, or elements of different inputs'
    /// places were combined.
    Mixed {
        /// Where.
        rank: Rank,
        /// What it was writing.
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
        /// Who came second here.
        rank: Rank,
        /// Whose memory it is. That rank, if it is its user who came second, after the call.
        of: Rank,
        /// What `rank` was using; nothing if it was the user.
        slice: Slice,
    },
    /// Of two ranks one lets the halves of its stage change places, or trades it, and the other
    /// does not; or there are not two who trade.
    Turn {
        /// Who differs from rank 0, or would trade.
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
    /// messages order how ranks use each other's memory: when it leaves, and what it says, could
    /// depend on timing.
    Token {
        /// The sender.
        rank: Rank,
        /// What it sends.
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

#[cfg(test)]
mod bits_tests;
#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod stage_tests;
#[cfg(test)]
mod tests;
