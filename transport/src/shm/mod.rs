//! Ranks are processes of one host and share memory.
//!
//! All ranks of a host share one file in memory without a name (`segment`). The lowest rank makes
//! it and hands it to the others over a Unix socket, after each has proven that it knows the job's
//! secret (`connect`, `handshake`, `crate::proof`). It has a slot for each rank (`slot`), and for
//! each pair of ranks and lane a place for a ring each way (`ring`), which has pages once the link
//! is first used (`links`). Sending is a copy into a ring; receiving is reading one. Neither makes
//! a system call, unless the peer is parked. Messages that are offered stay where they are: the
//! receiver copies them from the sender's memory, by a system call (`attach`). A rank also signals
//! all others at once how far it is, in its slot (`signal`). Windows, which all ranks have mapped,
//! lie in the same file (`arena`, `shared`). `endpoint` is one rank's end of all that.
//!
//! Who writes which line, which ordering pairs with which, and why no wake-up is lost: `README.md`
//! in this folder.

mod address;
mod arena;
mod attach;
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
pub use endpoint::{Offers, Shm};
pub use error::ConnectError;
