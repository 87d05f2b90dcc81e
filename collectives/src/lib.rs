//! What to do: collective algorithms as data.
//!
//! A *schedule* is everything one rank does in one call: per lane a list of steps over slices of
//! three buffers. It is made from (call, layout, rank, chunk) alone, so every rank makes its own
//! and they fit together. `lower` turns a schedule into a *program*, which picks fast forms, and a
//! `Stepper` runs one rank's program without I/O. `check` proves that the programs of all ranks
//! keep the promise of their call.
//!
//! * `schedule`: the language; `chunk`: the only place that divides counts;
//! * `program`: operations with their fast forms; `stepper`: execution; `check`: proofs;
//! * `crossing`: what a call moves across each level of a fabric;
//! * `pattern`: who talks to whom, integers only;
//! * `allreduce`, `allgather`, `reduce_scatter`, `broadcast`, `reduce`, `barrier`: one file per
//!   algorithm, which states the facts of `algorithm`; `catalog` lists them; `cost` and `select`
//!   choose.
//!
//! Nothing here knows that transports, clocks or environments exist.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod algorithm;
mod allgather;
mod allreduce;
mod barrier;
mod broadcast;
mod catalog;
pub mod check;
pub mod chunk;
pub mod cost;
pub mod crossing;
mod flat;
mod pattern;
mod plan;
mod printed;
pub mod program;
mod reduce;
mod reduce_scatter;
pub mod schedule;
#[cfg(test)]
mod schedule_tests;
pub mod select;
mod stage;
pub mod stepper;

pub use algorithm::{Algorithm, Plan, Stated};
pub use program::{Op, Program, Stores, Target, lower};
pub use schedule::{Builder, Form, Schedule, Source, Step};
pub use stepper::{Exchanged, Ports, Progress, Reduction, Stepper, Waiting};
