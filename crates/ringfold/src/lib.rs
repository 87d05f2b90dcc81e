//! ringfold, a collective communication library for training jobs.
//!
//! A [`Communicator`] is the membership of one process in a group of ranks. Its methods are the
//! collectives: all-reduce, all-gather, reduce-scatter, broadcast, reduce and barrier.
//! [`Communicator::init`] joins the group that a launcher describes in the environment (`ringrun`,
//! `torchrun`, `srun` or `mpiexec`). Without a launcher the process is a group of one. Programs
//! that start their ranks themselves join by a [`UniqueId`] or by a [`KeyValueStore`].
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
//! [`local::run`] runs ranks as threads of one process, for tests.
//!
//! # Types
//! Calls that reduce take each [`Element`]: integers of 8, 32 and 64 bits, and floats of 8, 16, 32
//! and 64 bits. Calls that only move data take every type that is [`Pod`], as `i16`, `usize`, an
//! array or a struct. A `bool` is not, since other bytes than 0 and 1 are none: move a `u8`.
//! Operations of the user ([`Communicator::register_op`]) also work on every such type.
//!
//! A struct derives [`Pod`] and [`Zeroable`] by the paths of this crate:
//!
//! ```
//! use ringfold::{Pod, Rank, Zeroable, local};
//!
//! #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
//! #[repr(C)]
//! #[bytemuck(crate = "ringfold::bytemuck")]
//! struct Best {
//!     loss: f32,
//!     rank: u16,
//!     epoch: u16,
//! }
//!
//! let best = Best { loss: 0.5, rank: 1, epoch: 30 };
//! let received = local::run(3, |comm| {
//!     let mut own = [if comm.rank() == Rank(1) { best } else { Best::zeroed() }];
//!     comm.broadcast(&mut own, Rank(1)).unwrap();
//!     own[0]
//! })?;
//! assert_eq!(received, [best; 3]);
//! # Ok::<(), ringfold::Error>(())
//! ```
//!
//! # Modules
//! A call passes through these modules in this order:
//!
//! * `collective`: the typed methods;
//! * `communicator`: the membership, which guards the call;
//! * `engine`: the core and the health of a communicator, as one;
//! * `core`: numbers the call, and owns everything that the call needs while it runs;
//! * `cache`: finds the compiled call, or compiles it after `arguments` has checked it;
//! * `execute`: runs the program of the call, and waits by `backoff`;
//! * `buffers`: translates the program's slices to bytes;
//! * `router`: passes messages to the transport of each peer.
//!
//! Messages between two ranks pass from `point_to_point` through `messages` to `router`.
//! `call_group` performs calls together, and `requests` performs calls that the program started.
//!
//! `group` makes communicators of some of a communicator's ranks, `recovery` those of the survivors
//! of a failure (`lineage` has their descent), and `store` those of ranks that
//! share a store. `shared` has windows, `registered` has registered buffers, and `setup` makes
//! communicators by the settings of `config`. `guard` ends a communicator whose operation fails or
//! panics, `health` keeps its failure, and `watch` detects that the job has failed. `profile` adds
//! up the times that `timing` takes of calls.
#![forbid(unsafe_code)]

mod arguments;
mod backoff;
mod buffers;
mod cache;
mod call_group;
mod collective;
mod communicator;
pub mod config;
mod core;
mod engine;
mod error;
mod execute;
mod group;
mod growth;
mod guard;
mod health;
mod host_lock;
#[cfg(test)]
mod interleave;
mod launcher;
mod lineage;
pub mod local;
mod messages;
mod metrics;
mod packs;
#[cfg(test)]
mod panic_tests;
mod parts;
mod point_to_point;
mod profile;
mod recovery;
mod registered;
mod requests;
mod router;
mod setup;
mod shared;
mod store;
mod ticket;
mod timing;
mod trace;
mod uneven;
mod unique_id;
mod watch;

pub use buffers::Buffers;
pub use bytemuck::{self, Pod, Zeroable};
pub use call_group::CallGroup;
pub use collective::Windows;
pub use communicator::Communicator;
pub use config::Config;
pub use error::{Error, Failure, Message, Operation};
pub use half::{bf16, f16};
#[doc(hidden)]
pub use metrics::serve_aggregator;
pub use parts::Parts;
pub use point_to_point::{ANY_SOURCE, ANY_TAG, Received};
pub use profile::{Profile, ProfiledCalls};
pub use registered::Registered;
pub use requests::{
    Failed, Prepared, Request, Scope, Started, test_all, wait_all, wait_any, wait_some,
};
pub use ringfold_bootstrap::interface::{Choice, Reason};
pub use ringfold_bootstrap::{
    Aborter, AbsentRank, CallPosition, DifferingCall, FailureCause, Listed, RankList, RankOnHost,
    RegroupError,
};
pub use ringfold_reduce::{Element, F8E4M3, F8E5M2};
pub use ringfold_topology::Layout;
pub use ringfold_topology::evidence::Evidence;
pub use ringfold_topology::prices::Rates;
pub use ringfold_topology::statement::UnreadableEvidence;
pub use ringfold_transport::Registration;
#[doc(hidden)]
pub use ringfold_transport::is_readable;
pub use ringfold_types::limits;
pub use ringfold_types::{
    Call, Collective, DataType, InvalidCall, Rank, ReduceOp, Scale, UnevenCall, UnevenCollective,
    UnknownName, Wire,
};
pub use setup::{
    DifferentSettings, InitError, TopologyError, UnreadablePeerInfo, evidence, tcp_rates,
};
#[doc(hidden)]
pub use setup::{is_evidence, is_peer_info, remove_old_records, this_moment};
pub use shared::{SharedWindow, Window};
pub use store::{KeyValueStore, StoreError};
pub use uneven::{Uneven, UserOp};
pub use unique_id::{InvalidUniqueId, UniqueId};

/// The errors behind an [`InitError`].
pub mod errors {
    pub use ringfold_bootstrap::interface::ChooseError;
    pub use ringfold_bootstrap::{DiscoverError, ExchangeError, JoinError, SecretError};
    pub use ringfold_transport::rdma::Unusable as RdmaError;
    pub use ringfold_transport::shm::ConnectError as ShmError;
    pub use ringfold_transport::tcp::{ConnectError as TcpError, ListenError};
}

/// Compiles the programs of the README and of the pages, and runs those that one rank can.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/embedding.md")]
#[doc = include_str!("../../../docs/groups.md")]
#[doc = include_str!("../../../docs/observability.md")]
#[doc = include_str!("../../../docs/overlap.md")]
#[doc = include_str!("../../../docs/point-to-point.md")]
#[doc = include_str!("../../../docs/recovery.md")]
#[doc = include_str!("../../../docs/uneven.md")]
struct Pages;
