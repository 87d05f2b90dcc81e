//! What every transport promises.
//!
//! A *link* is one lane between this rank and a peer; its two directions are independent, ordered,
//! reliable streams of tagged fragments with flow control. A transport polls and never blocks:
//! every method returns at once with what could be done. It lends out arrived bytes where they lie
//! (`readable`), so that a reduction can read them without a copy, and takes outgoing bytes from
//! where they lie (`send`).
//!
//! `Transport` is what all have. What only some have is an extension. `SharedMemory` extends the
//! trait itself; `Transport::rendezvous` and `Transport::registered_memory` lead to the others.
//!
//! Memory that a peer or a device writes on its own cannot be lent in safe Rust. So RDMA writes and
//! credits live below this line, in the transports, with two exceptions behind `unsafe` promises.
//! All peers map a `Window`, which ranks use in an `Exposure`. Peers may write to `Pages` after
//! `recv` has returned, if the transport was given a `Placement`.
//!
//! The contract imports no transport; what it hands out comes from `crate::sys`.

mod error;
mod link;
mod registered;
mod rendezvous;
mod shared;
mod transport;

pub use error::{LinkError, LinkFault};
pub use link::{Fragment, Link, Received};
pub use registered::RegisteredMemory;
pub use rendezvous::Rendezvous;
pub use shared::SharedMemory;
pub use transport::{EXCHANGE_BYTES, Exchanged, Transport};
