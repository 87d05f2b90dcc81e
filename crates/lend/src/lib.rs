//! The door between safe code and memory that peers use at the same time.
//!
//! A transport cannot know whether the ranks use each other's memory one after the other. The
//! schedules know: `collectives/src/check` proves for those of every algorithm, by vector clocks
//! and so for every order of events, that no two ranks use an element at the same time if one of
//! them writes it. Every rank performs the same call by the schedule of the same algorithm, or
//! learns from the first signal that it does not: signals carry a tag of the call.
//!
//! So a promise that a transport asks for is given here, for a program, which was lowered from a
//! schedule and proven with it. `ringfold` keeps it: it
//! accesses exposed windows only by the operations of that program, and completes the exposure only
//! when all of them are done.
//!
//! Registered memory is lent in the same way, for all receives of a transport: `placement`.
#![allow(unsafe_code)]

use ringfold_collectives::Program;
use ringfold_transport::{Exposure, Placement, ReadExposure, Window};

/// Exposes `window` for a call that `_by` performs.
#[must_use]
#[inline]
pub fn expose<'w>(_by: &Program, window: &'w mut Window) -> Exposure<'w> {
    // SAFETY: the ranks follow the schedules of one algorithm, which are proven free of races (see
    // above). A rank that has done its steps has heard from all peers that write to its part.
    unsafe { window.expose() }
}

/// Exposes `window`, which is only the input of the call that `_by` performs.
#[must_use]
#[inline]
pub fn expose_to_readers<'w>(_by: &Program, window: &'w Window) -> ReadExposure<'w> {
    // SAFETY: as above. No schedule writes to its input where the output lies elsewhere, which is
    // proven of each.
    unsafe { window.expose_to_readers() }
}

/// Lets peers write messages straight into registered memory of a transport, whose callers receive
/// by proven schedules, or by `ringfold_transport::trial`.
#[must_use]
#[inline]
pub const fn placement() -> Placement {
    // SAFETY: no step of a proven schedule accesses what an unfinished receive writes. The engine
    // of `ringfold` returns when all steps are done, else it withdraws, as its guard does after a
    // panic. `trial` does the same.
    unsafe { Placement::new() }
}
