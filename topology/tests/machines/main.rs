//! The machine reader on generated trees of `/sys` and `/proc`, on recordings, and on this machine.
//!
//! * `shapes`: machines with the shapes of cluster nodes; `nccl`: files in NCCL's XML format;
//! * `sysfs`: writes a host as its kernel would show it.
#![cfg(feature = "discover")]
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod nccl;
mod shapes;
mod sysfs;
