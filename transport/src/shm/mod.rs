//! Transport between processes of one host that share memory.
//!
//! All ranks of a host share one unnamed file in memory (`segment`). The lowest rank makes it and
//! sends its descriptor to the others over Unix sockets, after each has proven that it knows the
//! job's secret (`connect`, `handshake`, `crate::proof`). The file has a slot for each rank
//! (`slot`). For each pair of ranks and lane it has two rings, one per direction (`ring`), which
//! get pages on the first use of the link (`links`). A send is a copy into a ring, and a receive
//! reads from one. Neither makes a system call, unless the peer is parked. A rendezvous send leaves
//! the message in place, and the receiver copies it from the sender's memory by a system call
//! (`cma`). A rank also signals its progress to all others at once, in its slot (`signal`). Windows
//! lie in the same file, and all ranks map them (`arena`, `shared`). `endpoint` is one rank's view
//! of all that.
//!
//! `README.md` in this folder argues the writers of each line, the pairs of memory orderings, and
//! why no wake-up is lost.

mod address;
mod arena;
mod cma;
mod connect;
#[doc(hidden)]
pub mod decode;
mod endpoint;
mod error;
mod handshake;
mod links;
mod long;
mod ring;
mod segment;
mod shared;
mod signal;
mod slot;
#[cfg(test)]
mod tests;

pub use address::same_host;
pub use connect::{Config, Pending};
pub use endpoint::{Shm, SingleCopy};
pub use error::ConnectError;
