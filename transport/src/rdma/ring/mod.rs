//! The rings of a lane: the receiver's registered memory, and the sender's image of it.
//!
//! * `geometry`: the layout of a ring, and the numbers of writes;
//! * `outbound`, `inbound`: the sending and the receiving half;
//! * `invitation`: where a receiver wants bytes instead; `rtr`: the sender's view of that, with
//!   `backoff` where asking is of no use.

mod backoff;
pub(super) mod geometry;
pub(super) mod inbound;
pub(super) mod invitation;
pub(super) mod outbound;
mod rtr;
#[cfg(test)]
mod tests;
