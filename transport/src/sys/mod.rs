//! The interface to the operating system, as types that cannot be misused. It also has the memory
//! that the contract hands out: `Window` and `Pages`. `unsafe` code is limited to mapped memory,
//! other processes' memory, `fork`, the record of a process, long copies, cache hints and socket
//! options.

mod cache;
mod cma;
mod copy;
mod descriptors;
mod file_limit;
mod fork;
mod handover;
mod memory;
mod pages;
mod random;
mod record;
mod socket;
mod traffic;
mod waker;
mod window;

pub use cache::demote;
pub(crate) use cache::will_write;
pub use cma::is_readable;
pub(crate) use cma::read_process;
#[cfg(test)]
pub(crate) use copy::copied;
pub(crate) use copy::copy_bytes;
pub use copy::{copy, copy_non_temporal};
pub(crate) use descriptors::{receive, transmit};
pub use file_limit::may_write;
#[cfg(any(test, feature = "testing"))]
pub use fork::fork_for_test;
pub use fork::{Process, close_in_children};
pub(crate) use handover::Handover;
pub(crate) use memory::{Lease, Mapping, sealed_memory};
pub(crate) use pages::{Known, Region};
pub use pages::{Pages, Placement, UserBuffer};
pub(crate) use random::random;
pub use record::{
    at_exit, open_private_folder, record, record_folder, remove_record, ticks, trust_counter,
    use_exact_clock,
};
pub(crate) use socket::{Delivery, choose_port_late, delivery, outgoing};
pub(crate) use traffic::failed_over;
pub use traffic::{TRAFFIC_WORDS, count_traffic, sent};
pub use waker::Waker;
pub(crate) use waker::{NamedWaker, WakerAddress};
pub use window::{Exposure, OwnPart, PeerParts, ReadExposure, Window};
