//! The machine reader over generated trees of `/sys` and `/proc`, over recordings, and over this
//! machine.
//!
//! * `sysfs`: writes a host as its kernel would show it.
#![cfg(feature = "discover")]
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod shapes;
mod sysfs;
