//! What carries numbers over iWARP, whose writes have none: messages of four bytes, and the memory
//! that they are received into. The peer may read and write that memory, which tells it and us
//! nothing that it does not say anyway: devices answer reads of it, and read into it.

use std::io;
use std::sync::Arc;

use super::abi;
use super::memory::{Inbox, Mr, Pd};

/// Bytes of a number.
pub(super) const NOTE_BYTES: u32 = 4;

/// A place for each receive that a queue pair holds. They are used in turn, as the device does.
#[derive(Debug)]
pub(super) struct Notes {
    // Before the memory that it is the right to.
    right: Mr,
    memory: Inbox,
    places: u32,
    next: u32,
}

impl Notes {
    /// For so many receives at a time.
    pub(super) fn new(pd: &Arc<Pd>, places: u32) -> io::Result<Self> {
        // And one more for what is read.
        let memory = Inbox::new(((places + 1) * NOTE_BYTES) as usize)?;
        Ok(Self { right: memory.expose_all(pd)?, memory, places, next: 0 })
    }

    /// Where the peer may read, and the key to it.
    pub(super) fn may_be_read(&self) -> (u64, u32) {
        (self.memory.address(), self.right.remote_key())
    }

    /// Where what is read of the peer's goes.
    pub(super) fn answer(&self) -> abi::Sge {
        self.piece(self.places)
    }

    fn piece(&self, place: u32) -> abi::Sge {
        let addr = self.memory.address() + u64::from(place * NOTE_BYTES);
        abi::Sge { addr, length: NOTE_BYTES, lkey: self.right.local_key() }
    }

    /// Where the next receive takes its message, and the number of that place.
    pub(super) fn place(&mut self) -> (abi::Sge, u32) {
        let place = self.next;
        self.next = (place + 1) % self.places;
        (self.piece(place), place)
    }

    /// What lies at a place.
    pub(super) fn read(&self, place: u32) -> Option<u32> {
        let at = (place < self.places).then_some(place * NOTE_BYTES)?;
        Some(u32::from_le_bytes(self.memory.read(at as usize)))
    }
}
