//! Messages that their receivers copy from where they lie.

use super::error::LinkError;
use super::link::Link;

/// A transport whose receivers can copy a long message straight out of the sender's memory.
pub trait Rendezvous {
    /// Sends as `Transport::send` does, but lets the receiver copy the message from where it lies.
    /// The transport then accepts no bytes before the receiver has copied them.
    ///
    /// # Errors
    /// As `Transport::send`.
    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError>;

    /// Whether receivers would copy what this rank offers, and this rank what peers offer.
    fn takes_offers(&self) -> bool;

    /// Whether one copy by a receiver is about as fast as two copies through a link, or faster. It
    /// tries that out, which takes a fraction of a millisecond.
    fn is_fast(&self) -> bool;

    /// Whether a receiver has not copied all of an offered message yet. It may be copying now, and
    /// done soon.
    fn is_offering(&self) -> bool;
}
