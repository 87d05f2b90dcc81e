//! What to do: collective algorithms as data.
//!
//! A *schedule* is everything one rank does in one call: per lane a list of steps over slices of
//! three buffers. It is made from (call, layout, rank, chunk) alone, so every rank makes its own
//! and they fit together. `check` proves that they do, for all ranks at once; `machine` executes
//! one rank's schedule without I/O: the caller asks what to do next and reports what it could do.
//!
//! * `schedule`: the language; `chunk`: the only place that divides counts;
//! * `check`: proofs; `machine`: execution;
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
pub mod machine;
mod pattern;
mod plan;
mod printed;
mod reduce;
mod reduce_scatter;
pub mod schedule;
#[cfg(test)]
mod schedule_tests;
pub mod select;
mod stage;

pub use algorithm::{Algorithm, Plan, Stated};
pub use machine::{Action, Machine, Waiting};
pub use schedule::{Builder, Form, Schedule, Source, Step};
