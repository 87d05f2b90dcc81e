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
//! Inside, a call goes this way: `collective` (typed calls) and `arguments` (checks),
//! `communicator` (numbers the call, and fails for good), `cache` (its program, compiled once),
//! `execute` (runs the program, and waits by `backoff`), `buffers` (from slices to bytes) and
//! `router` (from ranks to transports). `shared` has memory that all ranks of a host have mapped,
//! and `watch` notices that the job has failed. `setup` makes communicators, by the settings of
//! `config`.
#![forbid(unsafe_code)]

mod arguments;
mod backoff;
mod buffers;
mod cache;
mod collective;
mod communicator;
pub mod config;
mod digest;
mod error;
mod execute;
pub mod local;
#[cfg(test)]
mod panic_tests;
mod router;
mod setup;
mod shared;
mod watch;

pub use buffers::Buffers;
pub use collective::Windows;
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
pub use shared::Window;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
