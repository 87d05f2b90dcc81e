//! How bytes move between two ranks: one contract, several ways.
//!
//! * `contract`: the `Transport` trait, its extensions and their values, which everything above
//!   sees;
//! * `sys`: the edge to the operating system, and memory that the contract hands out;
//! * `proof`: how two ranks that connect prove to each other that they belong to the job;
//! * `local`: ranks are threads of one process;
//! * `shm`: ranks are processes of one host;
//! * `tcp`: ranks have a network between them;
//! * `rdma`: a network whose devices write to each other's memory;
//! * `layer`: transports around a transport: faults, tracing, throttling;
//! * `trial`: what a link can do, tried by its two ends.
//!
//! Nothing here knows what a collective is.
mod contract;
pub mod layer;
pub mod local;
mod overflow;
mod proof;
pub mod rdma;
pub mod shm;
mod sys;
pub mod tcp;
pub mod trial;

pub use contract::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, LinkFault, Received, RegisteredMemory,
    Rendezvous, SharedMemory, Transport,
};
#[doc(hidden)]
pub use proof::decode_hello;
#[doc(hidden)]
pub use sys::fork_for_test;
pub use sys::{
    Exposure, OwnPart, Pages, PeerParts, Placement, Process, ReadExposure, Window,
    close_in_children, copy, copy_past, hand_over,
};
