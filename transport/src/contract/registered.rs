//! Memory that devices read and write in place.

use std::io;

use crate::sys::{Pages, UserBuffer};

/// A transport whose devices read and write long messages in memory that the transport has made, or
/// that a caller lends for the time of a call.
pub trait RegisteredMemory {
    /// Makes `bytes` zeroed bytes; `bytes` is at least 1. A device may read a message from there:
    /// `send` then accepts its bytes when the device has read them. With a `Placement`, a device
    /// may write a message there for `recv`. The system pins all pages during the first long `send`
    /// to each peer and the first long `recv` from each, which makes these calls slow.
    ///
    /// # Errors
    /// The system lacks memory.
    fn pages(&mut self, bytes: usize) -> io::Result<Pages>;

    /// Takes a caller's buffer like `pages`, until `release`. The transport registers it at the
    /// first long message in it, or copies its messages where it cannot be registered.
    fn lease(&mut self, buffer: UserBuffer);

    /// Gives all leased buffers back, after messages in them are accepted or received, or
    /// withdrawn. When this returns, no peer can access them any longer. A faulty device that keeps
    /// a buffer may go on reading it.
    fn release(&mut self);
}
