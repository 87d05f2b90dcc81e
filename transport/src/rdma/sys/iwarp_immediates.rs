//! Immediates over iWARP, whose writes have none: messages of four bytes, and the memory that
//! receives them. The peer may read and write that memory, because devices read into it. That gives
//! the peer nothing beyond its own messages.

use std::io;
use std::sync::Arc;

use super::abi;
use super::memory::{Inbox, Mr, Pd};

/// Bytes of an immediate.
pub(super) const IMMEDIATE_BYTES: u32 = 4;

/// A buffer slot for each receive that a queue pair holds. They are used in turn, as the device
/// does.
#[derive(Debug)]
pub(super) struct IwarpImmediates {
    // Dropped before the memory that it registers.
    right: Mr,
    memory: Inbox,
    slots: u32,
    next: u32,
}

impl IwarpImmediates {
    /// Makes slots for so many receives at a time.
    pub(super) fn new(pd: &Arc<Pd>, slots: u32) -> io::Result<Self> {
        // One more slot takes the answers of questions.
        let memory = Inbox::new(((slots + 1) * IMMEDIATE_BYTES) as usize)?;
        Ok(Self { right: memory.expose_to_questions(pd)?, memory, slots, next: 0 })
    }

    /// The slot that takes the answers of questions.
    pub(super) fn answer(&self) -> abi::Sge {
        self.piece(self.slots)
    }

    fn piece(&self, slot: u32) -> abi::Sge {
        let addr = self.memory.address() + u64::from(slot * IMMEDIATE_BYTES);
        abi::Sge { addr, length: IMMEDIATE_BYTES, lkey: self.right.local_key() }
    }

    /// The slot of the next receive, and its number.
    pub(super) fn next_slot(&mut self) -> (abi::Sge, u32) {
        let slot = self.next;
        self.next = (slot + 1) % self.slots;
        (self.piece(slot), slot)
    }

    /// Reads a slot.
    pub(super) fn read(&self, slot: u32) -> Option<u32> {
        let at = (slot < self.slots).then_some(slot * IMMEDIATE_BYTES)?;
        Some(u32::from_le_bytes(self.memory.read(at as usize)))
    }
}
