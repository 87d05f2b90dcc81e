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
//! * Each rank of a scan combines its inputs in rank order (`Order`).
//! * All ranks of an all-reduce combine an element's inputs in the same order, so they get the same
//!   bits (`Bits`).
//! * No step reads what was never written, or an input that the output has overwritten in place
//!   (`Unwritten`).
//! * The elements of a rendezvous send stay as they are until its receiver has taken them (`Race`,
//!   `Result`).
//! * Messages and signals (`Step::Signal`, `Step::Wait`) order any two accesses to one element if
//!   one of them writes (`Race`).
//! * All other ranks see a signal once, before another overwrites it (`Signal`, `Unreceived`).
//! * When the call ends, no rank uses the half of a staging buffer that the next call writes first
//!   (`Race`, `Swap`).
//! * Every slice lies in its buffer (`Bounds`).
//! * Where a provider in the network combines chunks, the members' own steps in its place give the
//!   same bits (`Bits`). [`check_failing`] shows it for a provider that fails in the middle.
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
//! * windows and staging buffers, among all lanes of all ranks;
//! * all buffers of a rank with several lanes, scratch included, among these lanes. No message
//!   leads from one lane to another, so no order between two lanes of a rank is ever known.
//!
//! # Why the same order gives the same bits
//!
//! A value carries a hash of the tree of operations that made it (`fold`). An input is a leaf. A
//! reduction adds an operator for each further source, from left to right. Division and rounding
//! are nodes of their own, where they happen. Equal trees over equal inputs give equal bits. A
//! proof refuses to combine a finished value (`Mixed`), because averages are divided once.
//!
//! # What is assumed
//!
//! * **Kernels** combine sources from left to right in the accumulator's type. They give the same
//!   bits for a + b and b + a, and write the canonical NaN only. A change of form to the
//!   accumulator is exact. `crates/reduce/tests/kernels/axioms.rs` tests this for every type and
//!   operation.
//! * **Hashes.** Two different trees have the same 64 bits with a chance of 2^-64.
//! * **Links** keep order, deliver what they accept, and accept `window_bytes` before the receiver
//!   takes any. The conformance suite of `transport` tests this.
//! * **Memory.** The receiver of a message or a signal sees what its sender stored before.
//! * **Ports** do what an operation says. `tests/suite` compares results and bits on every
//!   transport with an oracle.
//! * **Providers** in the network combine a chunk once all members have handed over their parts, in
//!   the order of the tree, and round like kernels. They take as many chunks as their window has.
//! * **Other calls** keep the same rules about links, signals and staging buffers.
//!   [`check_sequence`] shows it for calls that follow each other: a rank may be in a later call
//!   than its peers.
//!
//! `collectives/tests/proofs` runs proofs for all numbers of ranks up to 64 and for some up to
//! 1,024. Its `mutants` show that the proofs refuse schedules with random faults, unless no
//! execution on real numbers fails.

mod access;
mod expectations;
mod flaw;
mod fold;
mod memory;
mod offload;
mod provider;
mod races;
mod result;
mod sequence;
mod shared;
mod signals;
mod stream;
mod world;

use crate::algorithm::Stated;
use crate::schedule::Schedule;
use provider::{Offloading, same_bits};
use world::World;

pub use flaw::{Conditions, Flaw};
pub use sequence::check_sequence;

/// Proves the schedules of all ranks, given in rank order, and returns what they cost.
///
/// Time and memory grow with the steps of all ranks together. Where ranks share memory, they also
/// grow with the square of the number of ranks, because each keeps a clock of each.
///
/// # Errors
/// The first flaw that the run meets.
///
/// # Panics
/// If `schedules` is empty.
pub fn check(schedules: &[Schedule], conditions: Conditions) -> Result<Stated, Flaw> {
    let run = |offloading| World::new(schedules, conditions, offloading).run();
    let (stated, outputs) = run(Offloading::Always)?;
    if schedules.iter().any(Schedule::offloads) {
        let (_, relayed) = run(Offloading::Never)?;
        same_bits(&outputs, &relayed, schedules[0].call().count)?;
    }
    Ok(stated)
}

/// Proves the schedules of all ranks for a provider in the network that fails in the middle of the
/// call: after `turns` turns of ranks. Each turn performs at most one operation of each lane. The
/// results must have the bits of a call with a provider.
///
/// # Errors
/// The first flaw that the run meets.
///
/// # Panics
/// If `schedules` is empty.
pub fn check_failing(
    schedules: &[Schedule],
    conditions: Conditions,
    turns: usize,
) -> Result<(), Flaw> {
    let run = |offloading| World::new(schedules, conditions, offloading).run();
    let (_, outputs) = run(Offloading::Always)?;
    let (_, others) = run(Offloading::Until(turns))?;
    same_bits(&outputs, &others, schedules[0].call().count)
}

#[cfg(test)]
mod bits_tests;
#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod sequence_tests;
#[cfg(test)]
mod staging_tests;
#[cfg(test)]
mod tests;
