//! What the operating system says about this machine. Nothing else in this crate asks it.

mod cpus;
pub mod files;
mod host;

pub use cpus::{Cpus, InvalidCpus};
pub use host::{Host, cores};
