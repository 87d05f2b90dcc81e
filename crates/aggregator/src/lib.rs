//! In-network reduction by software: aggregators that combine the chunks of their children.
//!
//! * `core`: a group without I/O: chunks and results;
//! * `combine`: sums of a chunk's parts, by the kernels of `ringfold-reduce`;
//! * `pool`: the memory that all groups share;
//! * `links`: the endpoints of a group, over TCP and over RDMA;
//! * `uplink`: the link of a group to the one above it;
//! * `session`: the task of a group;
//! * `record`: the numbers of groups;
//! * `server`: the control port, where jobs ask for groups.
#![forbid(unsafe_code)]

pub mod combine;
pub mod core;
mod links;
pub mod pool;
mod record;
pub mod server;
mod session;
mod uplink;
