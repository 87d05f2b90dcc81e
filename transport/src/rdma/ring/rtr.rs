//! Ready-to-receive messages (RTR): the receiver tells where it wants the next bytes of a stream.
//! The sender's device then writes them there, and nobody copies them out of the ring.
//!
//! A receiver writes an RTR into the sender's mailbox as soon as it knows where it wants bytes of
//! the stream, in registered memory. Two may be open at once. A sender with registered memory also
//! asks for one in the headers of its fragments. It asks for the rest of a long message, which it
//! holds back after the first piece, or for the next message, for which it waits a moment
//! (`rtr_state`, `backoff`). A receiver answers before it copies bytes that are in the ring. The
//! sender need not use an RTR, and may have gone on by the ring. Bytes are counted from the
//! beginning of the stream, so later bytes still find their place. Headers of later fragments tell
//! that the RTR was seen. Nothing takes it back: it ends when all of its bytes have arrived,
//! directly or by the ring. Until then the memory belongs to the device.

use std::io;
use std::sync::Arc;

use ringfold_types::limits::{LANES_MAX, RAILS_MAX};

use super::layout::LINE_BYTES;
use crate::rdma::message::Grant;
use crate::rdma::sys::{Inbox, Mr, Pd};

/// Slots of a lane in a mailbox: one may be read while the next is written.
pub(in crate::rdma) const SLOTS: usize = 2;
/// Bytes of a mailbox.
pub(in crate::rdma) const MAILBOX_BYTES: usize = 4096;

/// Bytes of a slot: a line that every RTR has, and a line for the keys of further cables.
pub(in crate::rdma) const SLOT_BYTES: usize = 2 * LINE_BYTES;
/// The byte of a slot at which the keys begin.
const KEYS_AT: usize = 32;

const _: () = assert!(KEYS_AT + 4 * RAILS_MAX <= SLOT_BYTES);
const _: () = assert!(LANES_MAX * SLOTS * SLOT_BYTES <= MAILBOX_BYTES);

/// A ready-to-receive message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Rtr {
    /// The number of the message on its lane, from 1.
    pub(in crate::rdma) number: u32,
    /// The tag of the expected bytes.
    pub(in crate::rdma) tag: u32,
    /// The first expected byte of the stream.
    pub(in crate::rdma) from: u64,
    /// The number of expected bytes.
    pub(in crate::rdma) bytes: u64,
    /// The address of the memory, with its keys by cable; 0 for none.
    pub(in crate::rdma) to: Grant,
}

impl Rtr {
    pub(in crate::rdma) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut line = [0; SLOT_BYTES];
        line[..4].copy_from_slice(&self.number.to_le_bytes());
        line[4..8].copy_from_slice(&self.tag.to_le_bytes());
        line[8..16].copy_from_slice(&self.from.to_le_bytes());
        line[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        self.to.encode(&mut line[KEYS_AT - 8..]);
        line
    }

    pub(in crate::rdma) fn decode(line: &[u8; SLOT_BYTES]) -> Self {
        let word =
            |at: usize| u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let to = Grant::decode(&line[KEYS_AT - 8..]);
        Self { number: word(0), tag: word(4), from: long(8), bytes: long(16), to }
    }

    /// Returns the distance of byte `at` of the stream from the first expected byte, if byte `at`
    /// is expected.
    pub(in crate::rdma) fn reaches(&self, at: u64) -> Option<u64> {
        at.checked_sub(self.from).filter(|skipped| *skipped < self.bytes)
    }
}

/// The last message that a sender has seen in each slot, modulo 2^16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rdma) struct Seen([u16; SLOTS]);

impl Seen {
    pub(in crate::rdma) const fn saw(&mut self, number: u32, slot: usize) {
        self.0[slot % SLOTS] = low(number);
    }

    pub(in crate::rdma) const fn is_last(self, number: u32, slot: usize) -> bool {
        self.0[slot % SLOTS] == low(number)
    }

    pub(in crate::rdma) const fn encode(self) -> u32 {
        let [first, second] = self.0;
        first as u32 | (second as u32) << 16
    }

    pub(in crate::rdma) const fn decode(bits: u32) -> Self {
        Self([low(bits), low(bits >> 16)])
    }
}

const fn low(bits: u32) -> u16 {
    let [a, b, ..] = bits.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The slot of a message.
pub(in crate::rdma) const fn slot_of(number: u32) -> usize {
    number as usize % SLOTS
}

/// The bytes of a message to a peer with so many cables. Both lines are written whenever the second
/// has keys, so no key of an earlier message stays there.
pub(in crate::rdma) const fn bytes_for(cables: usize) -> usize {
    if KEYS_AT + 4 * cables <= LINE_BYTES { LINE_BYTES } else { SLOT_BYTES }
}

/// The byte of a mailbox at which a slot of a lane begins.
pub(in crate::rdma) const fn slot_at(lane: usize, slot: usize) -> usize {
    (lane * SLOTS + slot % SLOTS) * SLOT_BYTES
}

/// Memory in which a peer writes its ready-to-receive messages.
#[derive(Debug)]
pub(in crate::rdma) struct Mailbox {
    memory: Inbox,
    /// The registrations that let the peer write, by cable. Cables without one cannot.
    rights: Vec<Option<Mr>>,
}

impl Mailbox {
    /// Makes a mailbox that nobody can write.
    pub(in crate::rdma) fn new() -> io::Result<Self> {
        Ok(Self { memory: Inbox::new(MAILBOX_BYTES)?, rights: Vec::new() })
    }

    /// Lets the peer write by the queue pairs of a cable, which have that domain.
    pub(in crate::rdma) fn open(&mut self, cable: usize, pd: &Arc<Pd>) -> io::Result<()> {
        self.rights.resize_with(self.rights.len().max(cable + 1), || None);
        self.rights[cable] = Some(self.memory.expose(pd, false)?);
        Ok(())
    }

    /// The address and keys of the mailbox for the peer.
    pub(in crate::rdma) fn grant(&self) -> Grant {
        Grant::new(self.memory.address(), self.rights.iter().map(Option::as_ref))
    }

    /// Reads a slot.
    pub(in crate::rdma) fn read(&self, lane: usize, slot: usize) -> Rtr {
        Rtr::decode(&self.memory.read(slot_at(lane, slot)))
    }

    /// The number of registrations.
    pub(in crate::rdma) fn rights(&self) -> usize {
        self.rights.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A different key for each cable.
    fn all_keys() -> [u32; RAILS_MAX] {
        let mut next = u32::MAX;
        std::array::from_fn(|_| {
            next -= 1;
            next
        })
    }

    #[test]
    fn rtrs_travel() {
        let to = Grant { address: u64::MAX - 5, keys: all_keys() };
        let rtr = Rtr { number: u32::MAX, tag: 7 << 28, from: u64::MAX, bytes: 1 << 40, to };
        assert_eq!(Rtr::decode(&rtr.encode()), rtr);
        // One line is enough for a peer with few cables.
        for cables in 0..=RAILS_MAX {
            let mut keys = [0; RAILS_MAX];
            keys[..cables].copy_from_slice(&all_keys()[..cables]);
            let rtr = Rtr { to: Grant { keys, ..to }, ..rtr };
            let mut line = [0; SLOT_BYTES];
            line[..bytes_for(cables)].copy_from_slice(&rtr.encode()[..bytes_for(cables)]);
            assert_eq!(Rtr::decode(&line), rtr);
        }
        assert_eq!([bytes_for(1), bytes_for(RAILS_MAX)], [LINE_BYTES, SLOT_BYTES]);
    }

    #[test]
    fn expected_bytes_have_a_beginning_and_an_end() {
        let to = Grant { address: 0, keys: [0; RAILS_MAX] };
        let rtr = Rtr { number: 1, tag: 0, from: 100, bytes: 50, to };
        let reaches = [99, 100, 149, 150, u64::MAX].map(|at| rtr.reaches(at));
        assert_eq!(reaches, [None, Some(0), Some(49), None, None]);
    }

    #[test]
    fn every_lane_has_slots_of_its_own() {
        let slots = |lane| (0..SLOTS).map(move |slot| slot_at(lane, slot));
        let mut all: Vec<_> = (0..LANES_MAX).flat_map(slots).collect();
        all.dedup();
        assert_eq!(all.len(), LANES_MAX * SLOTS);
        assert!(all.iter().all(|at| at + SLOT_BYTES <= MAILBOX_BYTES));
        assert_eq!(slot_at(3, usize::MAX), slot_at(3, 1), "whatever the peer says");
    }
}
