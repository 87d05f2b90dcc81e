//! Memory that devices read and write where it lies.

use std::io;

use crate::sys::Pages;

/// A transport whose devices read and write long messages in memory that it has made.
pub trait RegisteredMemory {
    /// Makes `bytes` (not 0) zeroed bytes. A device may read what `send` sends from there, and
    /// `send` accepts those bytes when the device is done with them. With a `Placement`, a device
    /// may write there what `recv` receives. The first long `send` to each peer, and the first long
    /// `recv`, take as long as the system needs to pin all of the pages.
    ///
    /// # Errors
    /// The system lacks memory.
    fn pages(&mut self, bytes: usize) -> io::Result<Pages>;
}
