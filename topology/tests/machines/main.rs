//! The machine reader over generated trees of `/sys` and `/proc`, over recordings, and over this
//! machine.
//!
//! * `shapes`: machines of the shapes that clusters have; `nccl`: files in NCCL's XML format;
//! * `sysfs`: writes a host as its kernel would show it.
#![cfg(feature = "discover")]
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod nccl;
mod shapes;
mod sysfs;
