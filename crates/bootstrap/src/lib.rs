//! How ranks find each other, trust each other, and agree on what went wrong.
//!
//! `discover` reads a launcher's variables into an `Identity`. The job's `Secret` makes a process a
//! member of the job. `Control::join` connects the ranks and returns every rank's peer information.
//! `Control` then runs beside the data path until there is a `FailureCause`, which is the same for
//! every survivor.
//!
//! # Shape
//! The control plane is a star: rank 0's process runs the coordinator, and every rank keeps one
//! encrypted TCP connection to it (Noise NNpsk0 with the job secret). One control thread per
//! process serves the connections of all its communicators. So a rank that computes still answers,
//! and a stopped rank does not.
//!
//! # Limits of the star
//! - Joining costs rank 0 one handshake and one connection per rank. Rank 0 also sends the peer
//!   information of all ranks to each of `limits::ROSTER_FAN_OUT` ranks, which forward them.
//! - A failure cause takes one message to rank 0 and one back, at any number of ranks. Ranks that
//!   wait for the failure cause take one more message each way.
//! - Rank 0 is a single point of failure: if it dies, every rank notices. If it dies while it
//!   announces a failure cause, some ranks may get that failure cause and others may find rank 0
//!   dead.
//! - A rank that cannot reach rank 0 names rank 0. Ranks that reach rank 0 get one failure cause.
//! - A rank whose connection breaks reconnects to a second port of rank 0. If a firewall or an
//!   address translation hides that port, rank 0 declares the rank dead.
//! - A break that only rank 0 notices counts as the rank's death. The rank itself learns of the
//!   break only from its next message, or from its next keepalive after at most 10 s.
//! - Every process that holds the secret can pose as any rank. Only the control plane is encrypted.
//! - A stopped process and a disconnected one look the same: both are `Silent`.
#![forbid(unsafe_code)]

mod aborter;
mod acceptor;
mod address;
pub mod aggregators;
mod arbiter;
mod blocking;
mod call_log;
mod channel;
mod control;
mod coordinator;
#[doc(hidden)]
pub mod decode;
mod descriptors;
mod dial;
mod discover;
mod exchange;
mod failure_cause;
mod identity;
mod inbound;
mod inherited;
mod inquiry;
pub mod interface;
mod join;
pub mod local;
mod local_coordinator;
mod local_process;
mod member;
mod message;
pub mod pmi;
mod rank_state;
mod reconnect;
mod relay;
pub mod rendezvous;
mod respondent;
mod runtime;
mod secret;
mod torch_store;
mod turned_away;

pub use aborter::Aborter;
pub use address::{default_source, listen_at, loopback, show_connections, source_toward};
pub use arbiter::{Action, Arbiter, FailureReport};
pub use call_log::{CallLog, CallName, History, Logged, Windows};
pub use control::Control;
pub use discover::{DiscoverError, InvalidHostList, discover, expand_hosts, started_as_rank};
pub use exchange::ExchangeError;
pub use failure_cause::{FailureCause, Place, RankList, RankOnHost, Said, Whereabouts};
pub use identity::{Carrier, Identity, Launcher, Rendezvous};
pub use inquiry::Inquirer;
pub use join::{JoinError, Options, Parent};
pub use respondent::Respondent;
pub use secret::{Secret, SecretError};
pub use torch_store::TorchStore;

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
