//! Collective algorithms as data.
//!
//! A *schedule* is everything that one rank does in one call: for each lane a list of steps over
//! slices of buffers. An algorithm makes it from the call, the layout, the rank and the chunk
//! alone. So every rank makes its own, and they fit together. `lower` turns a schedule into a
//! *program*, which picks fast paths, and a `Stepper` runs one rank's program without I/O. `check`
//! proves that the programs of all ranks keep the promise of their call.
//!
//! * `schedule`: the language; `form`: the forms of elements;
//! * `chunk`: the only place that divides counts; `blocks`: blocks of different lengths;
//! * `program`: operations with their fast paths; `stepper`: execution; `check`: proofs;
//! * `connections`: the most links of a rank to other hosts;
//! * `crossing`: the messages of a call across each level of a fabric;
//! * `rails`: whether the messages of a call stay on their rails;
//! * `hosts`: teams within hosts, carriers between them, and ways to spread a call over both;
//! * `group`: groups that hand over chunks to a provider in the network; `offload`: their steps,
//!   with the members' own steps in its place;
//! * `fan`: the steps of a root that sends to each other rank;
//! * `in_network`: the parts that algorithms for such groups share;
//! * `pairs`: the order of messages where only pairs of ranks know the lengths;
//! * `pattern`: the communication patterns, integers only;
//! * `allreduce`, `allgather`, `reduce_scatter`, `broadcast`, `reduce`, `barrier`, `alltoall`,
//!   `gather`, `scatter`, `scan`, `exscan`: one file per algorithm, which states the facts of
//!   `algorithm`; `catalog` lists them, and `uneven` those for blocks of different lengths; `cost`
//!   and `select` choose.
//!
//! This crate does not depend on transports, clocks or environments.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod algorithm;
mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
pub mod blocks;
mod broadcast;
mod catalog;
pub mod check;
pub mod chunk;
mod connections;
pub mod cost;
pub mod crossing;
mod exscan;
mod fan;
mod flat;
mod form;
mod gather;
pub mod group;
mod hosts;
#[cfg(test)]
mod hosts_tests;
mod in_network;
pub mod offload;
pub mod pairs;
mod pattern;
mod plan;
mod printed;
pub mod program;
mod rails;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
pub mod schedule;
#[cfg(test)]
mod schedule_tests;
pub mod select;
mod staging;
pub mod stepper;
pub mod uneven;
mod wire;

pub use algorithm::{Algorithm, ScheduleParams, Stated};
pub use blocks::Blocks;
pub use in_network::members as in_network_members;
pub use program::{Expected, Op, Program, Stores, Target, lower};
pub use schedule::{Builder, Form, Schedule, Source, Step};
pub use stepper::{Exchanged, Ports, Progress, Reduction, Stepper, Waiting};
pub use uneven::Uneven;

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
