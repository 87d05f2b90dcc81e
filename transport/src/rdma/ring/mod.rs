//! The rings of a lane: the receiver's registered memory, and the sender's image of it.
//!
//! * `layout`: the layout of a ring, and the immediates of writes;
//! * `outbound`, `inbound`: the sending and the receiving half;
//! * `rtr`: ready-to-receive messages, for writes directly to the receiver's memory;
//! * `rtr_state`: the sender's view of them; `backoff`: the pauses where asking is of no use.

mod backoff;
pub(super) mod inbound;
pub(super) mod layout;
pub(super) mod outbound;
pub(super) mod rtr;
mod rtr_state;
#[cfg(test)]
mod tests;
