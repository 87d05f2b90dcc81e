//! Invitations: where a receiver wants the next bytes of a stream, so that the sender's device
//! writes them there and nobody has to copy them out of the ring.
//!
//! Who sends from registered memory asks with its fragments where what comes next is wanted: the
//! rest of a long message, which is kept back after its first piece, or the next message, with
//! which it then waits for a moment (`rtr`, `backoff`). A receiver that waits for that in
//! registered memory writes an invitation into the sender's mailbox. Whether that is made use of is
//! the sender's matter, which may have gone on by the ring: bytes are counted from the beginning of
//! the stream, so that what is sent after the invitation has come still finds its place. Later
//! fragments say that it was seen, and nothing takes it back: it ends when all of its bytes have
//! arrived, whichever way. Until then the memory is the device's.

use std::io;
use std::sync::Arc;

use ringfold_types::limits::{LANES_MAX, RAILS_MAX};

use super::geometry::LINE_BYTES;
use crate::rdma::message::Grant;
use crate::rdma::sys::{Inbox, Mr, Pd};

/// Places of a lane in a mailbox: one may be about to be read while the next is written.
pub(in crate::rdma) const PLACES: usize = 2;
/// Bytes of a mailbox, a page.
pub(in crate::rdma) const MAILBOX_BYTES: usize = 4096;

/// Bytes of a place: a line that every invitation has, and a line for the keys of further cables.
pub(in crate::rdma) const PLACE_BYTES: usize = 2 * LINE_BYTES;
/// Where the keys begin.
const KEYS_AT: usize = 32;

const _: () = assert!(KEYS_AT + 4 * RAILS_MAX <= PLACE_BYTES);
const _: () = assert!(LANES_MAX * PLACES * PLACE_BYTES <= MAILBOX_BYTES);

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Invitation {
    /// Counted by lane, from 1.
    pub(in crate::rdma) number: u32,
    /// Only bytes under this tag are invited.
    pub(in crate::rdma) tag: u32,
    /// The byte of the stream from which on, and how many.
    pub(in crate::rdma) from: u64,
    pub(in crate::rdma) bytes: u64,
    /// Where they go, with the keys to it by cable; 0 for none.
    pub(in crate::rdma) to: Grant,
}

impl Invitation {
    pub(in crate::rdma) fn encode(&self) -> [u8; PLACE_BYTES] {
        let mut line = [0; PLACE_BYTES];
        line[..4].copy_from_slice(&self.number.to_le_bytes());
        line[4..8].copy_from_slice(&self.tag.to_le_bytes());
        line[8..16].copy_from_slice(&self.from.to_le_bytes());
        line[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        self.to.encode(&mut line[KEYS_AT - 8..]);
        line
    }

    pub(in crate::rdma) fn decode(line: &[u8; PLACE_BYTES]) -> Self {
        let word =
            |at: usize| u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let to = Grant::decode(&line[KEYS_AT - 8..]);
        Self { number: word(0), tag: word(4), from: long(8), bytes: long(16), to }
    }

    /// How far on in it the byte `at` of the stream is, if that is invited.
    pub(in crate::rdma) fn reaches(&self, at: u64) -> Option<u64> {
        at.checked_sub(self.from).filter(|skipped| *skipped < self.bytes)
    }
}

/// The last invitation that a sender has seen in each place, modulo 2^16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rdma) struct Seen([u16; PLACES]);

impl Seen {
    pub(in crate::rdma) const fn saw(&mut self, number: u32, place: usize) {
        self.0[place % PLACES] = low(number);
    }

    pub(in crate::rdma) const fn is_last(self, number: u32, place: usize) -> bool {
        self.0[place % PLACES] == low(number)
    }

    /// Whether nothing is on its way up to that invitation.
    pub(in crate::rdma) fn has_all(self, number: u32) -> bool {
        let mut latest = (0..).take(PLACES).map(|back| number.wrapping_sub(back));
        latest.all(|number| self.is_last(number, place_of(number)))
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

/// Where an invitation lies.
pub(in crate::rdma) const fn place_of(number: u32) -> usize {
    number as usize % PLACES
}

/// The bytes of an invitation to a peer with so many cables. Both lines are written whenever there
/// are keys for the second, so that no key of an earlier invitation stays there.
pub(in crate::rdma) const fn bytes_for(cables: usize) -> usize {
    if KEYS_AT + 4 * cables <= LINE_BYTES { LINE_BYTES } else { PLACE_BYTES }
}

/// The byte of a mailbox at which a place of a lane begins.
pub(in crate::rdma) const fn place_at(lane: usize, place: usize) -> usize {
    (lane * PLACES + place % PLACES) * PLACE_BYTES
}

/// Where a peer writes its invitations.
#[derive(Debug)]
pub(in crate::rdma) struct Mailbox {
    memory: Inbox,
    /// What lets it, by cable; none where it may not.
    rights: Vec<Option<Mr>>,
}

impl Mailbox {
    /// One that is written by the queue pairs of these domains, where they can.
    pub(in crate::rdma) fn new<'a>(
        domains: impl Iterator<Item = Option<&'a Arc<Pd>>>,
    ) -> io::Result<Self> {
        let memory = Inbox::new(MAILBOX_BYTES)?;
        let right = |pd: Option<&Arc<Pd>>| memory.expose(pd?, false).ok();
        let rights = domains.map(right).collect();
        Ok(Self { memory, rights })
    }

    /// How the peer finds it.
    pub(in crate::rdma) fn grant(&self) -> Grant {
        Grant::new(self.memory.address(), self.rights.iter().map(Option::as_ref))
    }

    /// What lies there.
    pub(in crate::rdma) fn read(&self, lane: usize, place: usize) -> Invitation {
        Invitation::decode(&self.memory.read(place_at(lane, place)))
    }

    /// Registrations that there are.
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
    fn invitations_travel() {
        let to = Grant { address: u64::MAX - 5, keys: all_keys() };
        let invitation =
            Invitation { number: u32::MAX, tag: 7 << 28, from: u64::MAX, bytes: 1 << 40, to };
        assert_eq!(Invitation::decode(&invitation.encode()), invitation);
        // One line is enough for a peer with few cables.
        for cables in 0..=RAILS_MAX {
            let mut keys = [0; RAILS_MAX];
            keys[..cables].copy_from_slice(&all_keys()[..cables]);
            let invitation = Invitation { to: Grant { keys, ..to }, ..invitation };
            let mut line = [0; PLACE_BYTES];
            line[..bytes_for(cables)].copy_from_slice(&invitation.encode()[..bytes_for(cables)]);
            assert_eq!(Invitation::decode(&line), invitation);
        }
        assert_eq!([bytes_for(1), bytes_for(RAILS_MAX)], [LINE_BYTES, PLACE_BYTES]);
    }

    #[test]
    fn what_is_invited_has_a_beginning_and_an_end() {
        let to = Grant { address: 0, keys: [0; RAILS_MAX] };
        let invitation = Invitation { number: 1, tag: 0, from: 100, bytes: 50, to };
        let reaches = [99, 100, 149, 150, u64::MAX].map(|at| invitation.reaches(at));
        assert_eq!(reaches, [None, Some(0), Some(49), None, None]);
    }

    #[test]
    fn every_lane_has_places_of_its_own() {
        let places = |lane| (0..PLACES).map(move |place| place_at(lane, place));
        let mut all: Vec<_> = (0..LANES_MAX).flat_map(places).collect();
        all.dedup();
        assert_eq!(all.len(), LANES_MAX * PLACES);
        assert!(all.iter().all(|at| at + PLACE_BYTES <= MAILBOX_BYTES));
        assert_eq!(place_at(3, usize::MAX), place_at(3, 1), "whatever the peer says");
    }
}
