//! What the operating system says about this machine. Nothing else in this crate asks it.

mod host;

pub use host::{Host, cores};
