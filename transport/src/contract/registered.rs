//! Memory that devices read and write in place.

use std::io;

use crate::sys::Pages;

/// A transport whose devices read and write long messages in memory that the transport has made.
pub trait RegisteredMemory {
    /// Makes `bytes` zeroed bytes; `bytes` is at least 1. A device may read a message from there:
    /// `send` then accepts its bytes when the device has read them. With a `Placement`, a device
    /// may write a message there for `recv`. The system pins all pages during the first long `send`
    /// to each peer and the first long `recv` from each, which makes these calls slow.
    ///
    /// # Errors
    /// The system lacks memory.
    fn pages(&mut self, bytes: usize) -> io::Result<Pages>;
}
