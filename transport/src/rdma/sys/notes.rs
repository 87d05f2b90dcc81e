//! Immediates over iWARP, whose writes have none: messages of four bytes, and the memory that
//! receives them. The peer may read and write that memory, because devices answer reads from it,
//! and read into it. That gives the peer nothing beyond its own messages.

use std::io;
use std::sync::Arc;

use super::abi;
use super::memory::{Inbox, Mr, Pd};

/// Bytes of an immediate.
pub(super) const NOTE_BYTES: u32 = 4;

/// A buffer slot for each receive that a queue pair holds. They are used in turn, as the device
/// does.
#[derive(Debug)]
pub(super) struct Notes {
    // Dropped before the memory that it registers.
    right: Mr,
    memory: Inbox,
    places: u32,
    next: u32,
}

impl Notes {
    /// Makes slots for so many receives at a time.
    pub(super) fn new(pd: &Arc<Pd>, places: u32) -> io::Result<Self> {
        // One more slot takes the answers of questions.
        let memory = Inbox::new(((places + 1) * NOTE_BYTES) as usize)?;
        Ok(Self { right: memory.expose_all(pd)?, memory, places, next: 0 })
    }

    /// The address that the peer may read, and the key to it.
    pub(super) fn may_be_read(&self) -> (u64, u32) {
        (self.memory.address(), self.right.remote_key())
    }

    /// The slot that takes the answers of questions.
    pub(super) fn answer(&self) -> abi::Sge {
        self.piece(self.places)
    }

    fn piece(&self, place: u32) -> abi::Sge {
        let addr = self.memory.address() + u64::from(place * NOTE_BYTES);
        abi::Sge { addr, length: NOTE_BYTES, lkey: self.right.local_key() }
    }

    /// The slot of the next receive, and its number.
    pub(super) fn place(&mut self) -> (abi::Sge, u32) {
        let place = self.next;
        self.next = (place + 1) % self.places;
        (self.piece(place), place)
    }

    /// Reads a slot.
    pub(super) fn read(&self, place: u32) -> Option<u32> {
        let at = (place < self.places).then_some(place * NOTE_BYTES)?;
        Some(u32::from_le_bytes(self.memory.read(at as usize)))
    }
}
