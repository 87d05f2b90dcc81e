//! What the machine and the fabric look like, as far as it decides which schedule is best.
//!
//! * `layout`: which ranks share a host, and its CPUs;
//! * `discover`: the only part that touches the operating system.
#![forbid(unsafe_code)]

pub mod discover;
mod layout;

pub use layout::{Crowd, Layout};
