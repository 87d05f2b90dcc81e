//! Making windows: every rank maps the window's place in the segment, makes the pages of its own
//! part, and says so in its slot.
//!
//! ```text
//! leases    in how many ranks the window has ended
//! parts     one per slot
//! ```

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringfold_types::{Lane, Rank};

use super::Shm;
use super::error::{broken, error, unknown};
use super::segment::{PART_BYTES, Segment, WINDOWS_BYTES};
use super::slot::Made;
use crate::contract::{Link, LinkError, LinkFault, SharedMemory};
use crate::sys::{Lease, Mapping, Window};

/// Bytes of a large page; parts that are as long begin where one can.
const LARGE_BYTES: u64 = 2 * 1024 * 1024;
/// Ranks of a host up to which each has the pages of all parts in its tables before the first use.
/// For more it takes longer than to wait for those that are used.
const RANKS_PREPARED: usize = 16;

/// The place for windows that is left.
#[derive(Debug)]
pub(super) struct Arena {
    next: u64,
    end: u64,
}

/// Where a window lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    /// From one part to the next, and from `at` to the first.
    stride: u64,
    first: u64,
    ranks: usize,
}

/// A window that is being made.
#[derive(Debug)]
pub(super) struct Opening {
    bytes: usize,
    place: Option<Place>,
    /// All of it; or why this rank's part is not there.
    memory: io::Result<Mapping>,
    /// By slot, whether that rank has its part, as far as it has said so.
    are_made: Vec<Option<bool>>,
}

/// The memory that parts of a window keep: when the last rank has dropped the last of them, the
/// pages go back to the system.
#[derive(Debug)]
struct Held {
    segment: Arc<Segment>,
    memory: Mapping,
    place: Place,
}

impl Arena {
    pub(super) fn of(segment: &Segment) -> Self {
        let begin = segment.geometry().windows_at();
        Self { next: begin.next_multiple_of(LARGE_BYTES), end: begin + WINDOWS_BYTES }
    }

    /// The place for a window of `bytes` bytes for each of `ranks` ranks: the same on all. `None`
    /// if there is none that long.
    fn reserve(&mut self, bytes: usize, ranks: usize) -> Option<Place> {
        let bytes = u64::try_from(bytes).ok()?;
        let unit = if bytes < LARGE_BYTES { PART_BYTES as u64 } else { LARGE_BYTES };
        let stride = bytes.checked_next_multiple_of(unit)?;
        let (at, first) = (self.next, unit);
        let end = stride.checked_mul(ranks as u64)?.checked_add(at + first)?;
        let end = end.checked_next_multiple_of(LARGE_BYTES).filter(|end| *end <= self.end)?;
        self.next = end;
        Some(Place { at, stride, first, ranks })
    }
}

impl Place {
    fn bytes(self) -> io::Result<usize> {
        let bytes = self.first + self.stride * self.ranks as u64;
        usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Where the part of `slot`, of `bytes` bytes, lies in the window.
    fn part(self, slot: usize, bytes: usize) -> io::Result<Range<usize>> {
        let start = usize::try_from(self.first + self.stride * slot as u64);
        let start = start.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(start..start + bytes)
    }
}

impl SharedMemory for Shm {
    fn begin_window(&mut self, bytes: usize) -> Result<(), LinkError> {
        self.windows += 1;
        let place = self.arena.reserve(bytes, self.peers.len());
        let memory = self.map(place, bytes);
        self.slot.say_made(self.windows, bytes as u64, memory.is_ok());
        let are_made = vec![None; self.peers.len()];
        self.opening = Some(Opening { bytes, place, memory, are_made });
        Ok(())
    }

    fn finish_window(&mut self) -> Result<Option<io::Result<Window>>, LinkError> {
        let Some(mut opening) = self.opening.take() else { return Ok(None) };
        opening.are_made[self.own] = Some(opening.memory.is_ok());
        self.look();
        for slot in 0..self.peers.len() {
            if opening.are_made[slot].is_none() {
                opening.are_made[slot] =
                    self.hear(slot, opening.bytes).map_err(|fault| self.fault(slot, fault))?;
            }
        }
        if opening.are_made.iter().any(Option::is_none) {
            self.opening = Some(opening);
            return Ok(None);
        }
        Ok(Some(self.assembled(opening)))
    }

    #[inline]
    fn signal(&mut self, tag: u32) {
        self.teller.tell(tag);
        self.notify_all();
    }

    #[inline]
    fn signalled(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        let link = Link { peer, lane: Lane(0) };
        let Some(slot) = self.slot_of(peer) else { return Err(unknown(link)) };
        let peer = &self.peers[slot];
        match peer.hearer.told(&peer.slot) {
            // As in `readable`.
            Ok(None) if peer.has_ended => Err(error(link, LinkFault::Closed)),
            told => told.map_err(|why| broken(link, why)),
        }
    }

    #[inline]
    fn take_signal(&mut self, peer: Rank) {
        if let Some(slot) = self.slot_of(peer) {
            self.peers[slot].hearer.heard();
        }
    }
}

impl Shm {
    /// Maps a window and makes the pages of this rank's part.
    fn map(&self, place: Option<Place>, bytes: usize) -> io::Result<Mapping> {
        let place = place.ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = self.segment.window(place.at, place.bytes()?).map_err(|error| {
            // The file may be shorter than it should be, where the system limits it.
            if error.kind() == io::ErrorKind::InvalidData {
                io::Error::other("no room in the shared file; `ulimit -f` limits its length")
            } else {
                error
            }
        })?;
        memory.make(0..size_of::<AtomicU32>())?;
        let part = place.part(self.own, bytes)?;
        memory.make_pages(part).inspect_err(|_| self.segment.free_part(place, self.own))?;
        Ok(memory)
    }

    /// Whether the peer in `slot` has its part of the window that is being made, if it has said so.
    fn hear(&self, slot: usize, bytes: usize) -> Result<Option<bool>, LinkFault> {
        let peer = &self.peers[slot];
        let Made { number, bytes: said, is_made: [is_made, was_made] } = peer.slot.made();
        match number.checked_sub(self.windows) {
            Some(0) if said == bytes as u64 => Ok(Some(is_made)),
            // It has finished this one and begun the next.
            Some(1) => Ok(Some(was_made)),
            Some(_) => Err(LinkFault::Protocol("another window than was asked for")),
            None if peer.has_ended => Err(LinkFault::Closed),
            None => Ok(None),
        }
    }

    fn assembled(&self, opening: Opening) -> io::Result<Window> {
        let Opening { bytes, place, memory, are_made } = opening;
        let (memory, place) = (memory?, place.ok_or(io::ErrorKind::OutOfMemory)?);
        if are_made.contains(&Some(false)) {
            // Nobody will use it: every rank has said how it ended.
            self.segment.free_part(place, self.own);
            if self.own == 0 {
                self.segment.free(place.at, place.first);
            }
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        let held = Held { segment: Arc::clone(&self.segment), memory, place };
        let held = Arc::new(held);
        let part = |slot| -> io::Result<Mapping> {
            Ok(held.memory.part(place.part(slot, bytes)?, Arc::clone(&held) as Arc<dyn Lease>))
        };
        let own = part(self.own)?;
        let mut peers: Vec<Option<Mapping>> = self.slots.iter().map(|_| None).collect();
        for (slot, peer) in self.peers.iter().enumerate().filter(|(slot, _)| *slot != self.own) {
            let part = part(slot)?;
            if self.peers.len() <= RANKS_PREPARED {
                part.populate()?;
            }
            peers[peer.rank.index()] = Some(part);
        }
        Ok(Window::new(own, peers))
    }

    fn fault(&self, slot: usize, fault: LinkFault) -> LinkError {
        error(Link { peer: self.peers[slot].rank, lane: Lane(0) }, fault)
    }
}

impl Segment {
    fn free_part(&self, place: Place, slot: usize) {
        self.free(place.at + place.first + place.stride * slot as u64, place.stride);
    }
}

impl Lease for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.segment.is_ours() {
            return;
        }
        // SAFETY: the mapping begins with a page of its own, whose first word is only ever accessed
        // as this atomic.
        let ended: &AtomicU32 = unsafe { self.memory.base().cast().as_ref() };
        // Acquire and release: the last one comes after all that the others did with the pages.
        let before = ended.fetch_add(1, Ordering::AcqRel);
        if before as usize + 1 == self.place.ranks {
            let bytes = self.place.first + self.place.stride * self.place.ranks as u64;
            self.segment.free(self.place.at, bytes);
        }
    }
}
