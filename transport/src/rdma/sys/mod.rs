//! The interface to libibverbs and librdmacm: their objects as types that cannot be misused. Each
//! object keeps those alive that it was made from. Memory is unmapped only after the device can no
//! longer access it.
//!
//! * `abi`: types and numbers of their headers, with their layout asserted;
//! * `library`: their functions, found at run time;
//! * `device`: devices, ports and GIDs; `addresses`: the addresses of this network namespace;
//! * `memory`: protection domains and registered memory;
//! * `completion`: completion queues, and the descriptor on which they notify;
//! * `queue_pair`: reliable connections; `iwarp_immediates`: immediates over iWARP;
//! * `connection`: the connections of queue pairs over iWARP.
#![allow(unsafe_code)]

mod abi;
#[cfg(test)]
mod abi_tests;
mod addresses;
mod completion;
mod connection;
mod device;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod iwarp_immediates;
mod library;
mod memory;
mod queue_pair;
mod request;

pub(super) use addresses::{Assigned, addresses};
pub(super) use completion::{Channel, Completion, Cq, Outcome};
pub(super) use connection::{CmEvent, Connection, Connector, Ticket};
pub(super) use device::{
    About, Context, DEVICES, Event, Gid, GidKind, Limits, LinkLayer, Port, devices,
};
pub(super) use library::forks_copy_pinned_pages;
pub(super) use memory::{Inbox, Mr, Outbox, Pd};

pub(super) use crate::sys::{Known, Pages, Placement, UserBuffer};
pub(super) use queue_pair::{Put, Qp, Route, Sizes, Target};
