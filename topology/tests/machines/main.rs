//! The machine reader over generated trees of `/sys` and `/proc`, over recordings, and over this
//! machine.
//!
//! * `sysfs`: writes a host as its kernel would show it.
#![cfg(feature = "discover")]

mod shapes;
mod sysfs;
