//! Memory that devices read and write in place.

use std::fmt;
use std::io;
use std::sync::Arc;

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

    /// Takes a caller's buffer like `pages`, until `release`. Where it is registered already, the
    /// registration serves. Otherwise the transport registers it at the first long message in it,
    /// or copies its messages where it is too short for that or cannot be registered.
    fn lease(&mut self, buffer: UserBuffer);

    /// Gives all leased buffers back, after messages in them are accepted or received, or
    /// withdrawn. When this returns, no peer can access them any longer. A faulty device that keeps
    /// a buffer may go on reading it.
    fn release(&mut self);

    /// Registers a caller's buffer (not empty) with the devices, for all calls of the process that
    /// lease parts of it. Its length has no limit but those of registered memory as a whole. If no
    /// device can register it, the log has the reason and nothing is returned: calls then lease it
    /// as any other buffer.
    ///
    /// A peer that was told its place in a call may write there as long as the buffer is
    /// registered. A peer that keeps the protocol writes only what a call receives there.
    fn register(&mut self, buffer: UserBuffer) -> Option<Registration>;
}

/// A caller's buffer that stays registered. Dropping it deregisters the buffer, as soon as no call
/// that uses it is under way. From then on no device accesses the buffer.
#[derive(Debug)]
pub struct Registration {
    _kept: Arc<dyn fmt::Debug + Send + Sync>,
}

impl Registration {
    /// Wraps a value whose drop deregisters the buffer.
    #[must_use]
    pub fn new(kept: impl fmt::Debug + Send + Sync + 'static) -> Self {
        Self { _kept: Arc::new(kept) }
    }
}
