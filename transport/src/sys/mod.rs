//! The edge to the operating system: what the transports need of it, as types that cannot be
//! misused. Mapped memory is the only part that needs `unsafe`.

mod bell;
mod descriptors;
mod memory;

pub(crate) use bell::Bell;
pub(crate) use descriptors::{receive, transmit};
pub(crate) use memory::{Access, Mapping, sealed_memory};
