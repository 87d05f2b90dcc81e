//! How ranks find each other, trust each other, and agree on what went wrong.
//!
//! `discover` reads a launcher's variables into an `Identity`; its `Secret` is what makes a process
//! a member; `Control::join` meets the other ranks and yields everyone's card; `Control` then
//! listens beside the data path until there is a `Verdict`, the same one for every survivor.
//!
//! # Shape
//! A star: rank 0's process carries the hub, and every rank keeps one encrypted TCP connection to
//! it (Noise NNpsk0 with the job secret). One control thread per process serves it all, so that a
//! rank which computes still answers, and one that is stopped does not.
//!
//! # Limits of the star
//! - To join costs rank 0 one handshake (0.3 ms) per rank, one connection per rank, and the cards
//!   of all ranks once for each of `limits::ROSTER_FAN_OUT` ranks, which hand them on.
//! - A verdict takes one message to rank 0 and one back, at any number of ranks. Ranks that wait
//!   for it take one more each way.
//! - Rank 0 is a single point of failure: if it dies, every rank sees that. If it dies while it
//!   hands out a verdict, some ranks may hear that verdict and others that rank 0 is gone.
//! - A rank that cannot reach rank 0 names rank 0. Ranks that reach rank 0 get one verdict.
//! - A connection that breaks is made again at a second port of rank 0. Where a firewall or an
//!   address translation hides that port, the rank is called dead.
//! - A break that only rank 0 notices is a rank's death: nothing tells the rank to come back before
//!   its next message, or its next keepalive after at most 10 s.
//! - Who holds the secret can pose as any rank. Only the control plane is encrypted.
//! - A process that is stopped is told from one that is cut off by nothing: both are `Silent`.
#![forbid(unsafe_code)]

mod aborter;
mod acceptor;
mod address;
mod call_log;
mod channel;
mod control;
#[doc(hidden)]
pub mod decode;
mod descriptors;
mod dial;
mod discover;
mod exchange;
mod hub;
mod identity;
mod inbound;
mod inherited;
pub mod interface;
mod join;
mod judge;
pub mod local;
mod member;
mod message;
pub mod pmi;
mod reconnect;
mod relay;
pub mod rendezvous;
mod room;
mod seat;
mod secret;
mod torch_store;
mod turned_away;
mod verdict;

pub use aborter::Aborter;
pub use address::{default_source, show_connections, source_toward};
pub use call_log::{CallLog, CallName, History, Logged, Windows};
pub use control::Control;
pub use discover::{DiscoverError, InvalidHostList, discover, expand_hosts, started_as_rank};
pub use exchange::ExchangeError;
pub use identity::{Carrier, Identity, Launcher, Rendezvous};
pub use join::{JoinError, Options};
pub use judge::{Action, Complaint, Judge};
pub use secret::{Secret, SecretError};
pub use torch_store::TorchStore;
pub use verdict::{Place, RankList, Said, Verdict, Whereabouts, Who};
