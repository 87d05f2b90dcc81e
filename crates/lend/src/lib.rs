//! The bridge between safe code and memory that peers access at the same time.
//!
//! A transport cannot know whether the ranks access each other's memory one after the other. The
//! schedules know: `collectives/src/check` proves a property of the schedules of every algorithm.
//! No two ranks access an element at the same time if one of them writes it. The proof uses vector
//! clocks and so holds for every order of events. Every rank performs the same call by the schedule
//! of the same algorithm. A rank in another call learns so from the first signal, which carries a
//! tag of the call.
//!
//! So this crate gives the promises that a transport asks for. It gives them for a program, which
//! was lowered from a proven schedule. `ringfold` keeps them: it accesses exposed windows only by
//! the operations of that program, and completes the exposure only when all of them are done.
//!
//! `placement` lends registered memory in the same way, for all receives of a transport.
//! `lend_input` and `lend_output` lend a caller's own buffers for the time of a call, and
//! `lend_registered` lends one for the calls to come. `lend` lends the memory of an owner to a call
//! that outlasts the function that starts it.
#![allow(unsafe_code)]

mod loan;

use ringfold_collectives::Program;
use ringfold_transport::{Exposure, Placement, ReadExposure, UserBuffer, Window};

pub use loan::{
    Loan, Owner, borrow_buffers, borrow_input, borrow_output, lend, lend_in_scope, lend_parts,
};

/// Exposes `window` for a call that the program `_by` performs.
#[must_use]
#[inline]
pub fn expose<'w>(_by: &Program, window: &'w mut Window) -> Exposure<'w> {
    // SAFETY: the ranks follow the schedules of one algorithm, which are proven free of races (see
    // above). A rank that has done its steps has received signals from all peers that write to its
    // part. While a call is suspended, it keeps its windows and its staging buffer to itself.
    unsafe { window.expose() }
}

/// Exposes `window`, which is only an input of the call that the program `_by` performs.
#[must_use]
#[inline]
pub fn expose_to_readers<'w>(_by: &Program, window: &'w Window) -> ReadExposure<'w> {
    // SAFETY: as above. No schedule writes to its input if the output lies elsewhere; the proof
    // covers that for each schedule.
    unsafe { window.expose_to_readers() }
}

/// Lets peers write messages straight into registered memory of a transport. All receives of that
/// transport must follow proven schedules, or be those of `ringfold_transport::trial`.
#[must_use]
#[inline]
pub const fn placement() -> Placement {
    // SAFETY: no step of a proven schedule accesses memory that an unfinished receive writes, or
    // that was announced for one: `collectives/src/check/expectations.rs` proves it. The engine of
    // `ringfold` returns when all steps are done. Otherwise it calls `withdraw`; after a panic its
    // guard does. `trial` does the same.
    unsafe { Placement::new() }
}

/// Lends bytes that a call sends. The caller keeps the borrow until the transport has released the
/// buffer.
#[must_use]
#[inline]
pub const fn lend_input(bytes: &[u8]) -> UserBuffer {
    // SAFETY: the engine of `ringfold` lends buffers of a call's caller, whose borrow outlasts the
    // call. `block_on` releases them before it returns, after `withdraw` where the call failed.
    // After a panic the guard of the call does the same.
    unsafe { UserBuffer::input(bytes) }
}

/// Lends bytes that a call receives and sends. The caller keeps the borrow until the transport has
/// released the buffer.
#[must_use]
#[inline]
pub const fn lend_output(bytes: &mut [u8]) -> UserBuffer {
    // SAFETY: as above. Receives follow proven schedules, as for `placement`, or are messages.
    // Nothing but its receive touches the bytes of a message.
    unsafe { UserBuffer::output(bytes) }
}

/// Lends bytes that stay registered with devices between calls.
#[must_use]
#[inline]
pub const fn lend_registered(bytes: &mut [u8]) -> UserBuffer {
    // SAFETY: devices access registered bytes for messages only, and a peer's write belongs to a
    // message that a call receives. The calls lend their buffers by `lend_input` and `lend_output`,
    // which keep the rule. A peer that breaks the protocol changes bytes that have every value: the
    // owner of the registration ends it before the memory is freed.
    unsafe { UserBuffer::output(bytes) }
}
