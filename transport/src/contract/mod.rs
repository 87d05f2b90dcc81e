//! The contract that every transport keeps.
//!
//! A *link* is one lane between this rank and a peer. Its two directions are independent, ordered
//! and reliable streams of tagged fragments with flow control. A transport polls and never blocks:
//! every method returns at once and says how much it has done. `readable` lends out arrived bytes
//! in place, and a reduction reads them without a copy. `send` reads outgoing bytes in place.
//!
//! All transports implement `Transport`; extensions cover the abilities that only some have.
//! `SharedMemory` extends the trait itself. `Transport::rendezvous` and
//! `Transport::registered_memory` return the others.
//!
//! Safe Rust cannot lend memory that a peer or a device writes on its own. So RDMA writes and
//! credits stay inside the transports, with two exceptions behind `unsafe` promises. All peers map
//! a `Window`, which ranks use in an `Exposure`. Peers may write to `Pages` after `recv` has
//! returned, if the transport was given a `Placement`.
//!
//! The contract imports no transport; the memory that it hands out comes from `crate::sys`.

mod error;
mod link;
mod registered;
mod rendezvous;
mod shared;
mod transport;

pub use error::{LinkError, LinkFault};
pub use link::{Fragment, Link, Received};
pub use registered::{RegisteredMemory, Registration};
pub use rendezvous::Rendezvous;
pub use shared::SharedMemory;
pub use transport::{EXCHANGE_BYTES, Exchanged, Transport};
