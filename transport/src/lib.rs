//! Transports: how bytes move between two ranks. One contract, several implementations.
//!
//! * `contract`: the `Transport` trait, its extensions and their values, which all callers use;
//! * `sys`: the interface to the operating system, and the memory that the contract hands out;
//! * `proof`: the handshake by which two ranks prove to each other that they belong to the job;
//! * `refusals`: the log of refused connections;
//! * `shares`: the rates of the paths to a peer, of which one may be slow;
//! * `local`: ranks are threads of one process;
//! * `shm`: ranks are processes of one host and share memory;
//! * `tcp`: ranks are processes with an IP network between them;
//! * `rdma`: ranks have network devices that write to each other's memory;
//! * `layer`: wrappers around a transport: views of its traffic; faults and throttling, behind the
//!   feature `testing`;
//! * `trial`: both ends of a link test it: reachability, latency and bandwidth.
//!
//! This crate knows nothing of collectives.
mod contract;
pub mod layer;
pub mod local;
mod overflow;
mod proof;
pub mod rdma;
mod refusals;
mod shares;
pub mod shm;
mod sys;
pub mod tcp;
pub mod trial;

pub use contract::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, LinkFault, Received, RegisteredMemory,
    Registration, Rendezvous, SharedMemory, Transport,
};
#[doc(hidden)]
pub use proof::decode_hello;
#[cfg(any(test, feature = "testing"))]
pub use sys::fork_for_test;
pub use sys::{
    Exposure, OwnPart, Pages, PeerParts, Placement, Process, ReadExposure, TRAFFIC_WORDS,
    UserBuffer, Waker, Window, at_exit, close_in_children, copy, copy_non_temporal, count_traffic,
    demote, is_readable, may_write, open_private_folder, record, record_folder, remove_record,
    sent, ticks, trust_counter, use_exact_clock,
};
pub use tcp::ticker::Ticker;

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
