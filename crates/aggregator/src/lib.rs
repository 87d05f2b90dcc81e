//! In-network reduction by software: aggregators that combine the chunks of their children.
//!
//! * `core`: a group without I/O: chunks, epochs and results;
//! * `combine`: sums of a chunk's parts, by the kernels of `ringfold-reduce`;
//! * `pool`: the memory that all groups share.
#![forbid(unsafe_code)]

pub mod combine;
pub mod core;
pub mod pool;
