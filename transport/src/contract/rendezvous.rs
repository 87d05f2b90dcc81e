//! Messages that receivers copy from the sender's memory (rendezvous, single copy).

use super::error::LinkError;
use super::link::Link;

/// A transport whose receivers can copy a long message straight out of the sender's memory.
pub trait Rendezvous {
    /// Sends by rendezvous: like `Transport::send`, but the receiver copies the message from
    /// `bytes`. The transport accepts no bytes before the receiver has copied them.
    ///
    /// # Errors
    /// As `Transport::send`.
    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError>;

    /// Whether peers can copy messages from this rank's memory, and this rank from theirs.
    fn can_single_copy(&mut self) -> bool;

    /// Whether one copy by a receiver is about as fast as two copies through a link, or faster.
    /// Measures that, which takes a fraction of a millisecond.
    fn is_fast(&mut self) -> bool;

    /// Whether a rendezvous send is unfinished: its receiver has not copied all of the message. The
    /// receiver may be copying now, and may finish soon.
    fn is_offering(&mut self) -> bool;
}
