//! ringfold, a collective communication library: what training jobs `use`.
//!
//! A [`Communicator`] is one process's membership in a group of ranks. It is made from what the
//! launcher left in the environment (`ringrun`, `torchrun`, `srun`, `mpiexec`; alone it is a group
//! of one), and offers the collectives: all-reduce, all-gather, reduce-scatter, broadcast, reduce,
//! barrier.
//!
//! ```
//! use ringfold::{Communicator, ReduceOp};
//!
//! let mut comm = Communicator::init()?;
//! let mut gradient = vec![comm.rank().0 as f32; 1000];
//! comm.all_reduce(&mut gradient, ReduceOp::Avg)?;
//! # Ok::<(), ringfold::Error>(())
//! ```
//!
//! [`local::run`] gives threads of one process their ranks, for tests.
//!
//! Inside: `calls` checks arguments, `plans` chooses and keeps schedules, `engine` runs them over
//! the transports of `router` and the buffers of `memory`, `short` does without a machine what is
//! done at once, `window` makes buffers that all ranks of a host reach, `windowed` and `reach` are
//! about calls in them, `wait` is about having nothing to do, `watch` notices that the
//! job has failed, `setup` brings the ranks together, `config` holds the settings.
#![forbid(unsafe_code)]

mod calls;
mod communicator;
pub mod config;
mod contest;
mod digest;
mod engine;
mod error;
pub mod local;
mod memory;
mod pair;
#[cfg(test)]
mod panic_tests;
mod plans;
mod reach;
mod router;
mod rows;
mod setup;
mod short;
mod stage;
mod wait;
mod watch;
mod window;
mod windowed;

pub use calls::Buffers;
pub use communicator::Communicator;
pub use config::Config;
pub use error::{Error, Failure};
pub use ringfold_bootstrap::interface::{Choice, Reason};
pub use ringfold_bootstrap::{Aborter, Verdict};
pub use ringfold_reduce::{Element, F8E4M3, F8E5M2};
pub use ringfold_topology::Layout;
pub use ringfold_types::limits;
pub use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Scale};
pub use setup::{
    DifferentSettings, InitError, TopologyError, UnreadableEvidence, UnreadablePeerInfo, evidence,
};
#[doc(hidden)]
pub use setup::{is_evidence, is_peer_info};
pub use window::Window;
pub use windowed::Windows;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
