//! Signals and windows. To make a window, every rank maps the window's place in the segment, makes
//! the pages of its own part, and reports that in its slot.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ringfold_types::{Lane, Rank};

use super::arena::{Held, Opening, Place};
use super::endpoint::Shm;
use super::error::{broken, error, unknown};
use super::slot::WindowReport;
use crate::contract::{Link, LinkError, LinkFault, SharedMemory};
use crate::sys::{Lease, Mapping, Window};

/// Ranks of a host up to which each rank fills its page tables for all parts before the first use.
/// For more ranks that takes longer than the page faults of the parts in use.
const RANKS_PREPARED: usize = 16;

impl SharedMemory for Shm {
    fn begin_window(&mut self, bytes: usize) -> Result<(), LinkError> {
        self.windows += 1;
        let place = self.arena.reserve(bytes, self.peers.len());
        let memory = self.map(place, bytes);
        self.slot.report_window(self.windows, bytes as u64, memory.is_ok());
        let are_made = vec![None; self.peers.len()];
        self.opening = Some(Opening { bytes, place, memory, are_made });
        Ok(())
    }

    fn finish_window(&mut self) -> Result<Option<io::Result<Window>>, LinkError> {
        let Some(mut opening) = self.opening.take() else { return Ok(None) };
        opening.are_made[self.own] = Some(opening.memory.is_ok());
        self.handle_events();
        for slot in 0..self.peers.len() {
            if opening.are_made[slot].is_none() {
                opening.are_made[slot] =
                    self.reported(slot, opening.bytes).map_err(|fault| self.fault(slot, fault))?;
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
        self.signaller.signal(tag);
        self.notify_all();
    }

    #[inline]
    fn signalled(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        let link = Link { peer, lane: Lane(0) };
        let Some(slot) = self.slot_of(peer) else { return Err(unknown(link)) };
        let peer = &self.peers[slot];
        match peer.signals.next(&peer.slot) {
            // As in `readable`.
            Ok(None) if peer.has_ended => Err(error(link, peer.fault())),
            signalled => signalled.map_err(|why| broken(link, why)),
        }
    }

    #[inline]
    fn take_signal(&mut self, peer: Rank) {
        if let Some(slot) = self.slot_of(peer) {
            self.peers[slot].signals.take();
        }
    }
}

impl Shm {
    /// Maps a window and makes the pages of this rank's part.
    fn map(&self, place: Option<Place>, bytes: usize) -> io::Result<Mapping> {
        let place = place.ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = self.segment.window(place.at, place.bytes()?).map_err(|error| {
            // The file may be shorter than planned if the system limits its length.
            if error.kind() == io::ErrorKind::InvalidData {
                io::Error::other("no room in the shared file, which `ulimit -f` limits")
            } else {
                error
            }
        })?;
        memory.make(0..size_of::<AtomicU32>())?;
        let part = place.part(self.own, bytes)?;
        memory.make_pages(part).inspect_err(|_| place.free_part(&self.segment, self.own))?;
        Ok(memory)
    }

    /// Whether the peer in `slot` has its part of the window in progress; `None` if it has not
    /// reported.
    fn reported(&self, slot: usize, bytes: usize) -> Result<Option<bool>, LinkFault> {
        let peer = &self.peers[slot];
        let WindowReport { number, bytes: said, is_made: [is_made, was_made] } =
            peer.slot.window_report();
        match number.checked_sub(self.windows) {
            Some(0) if said == bytes as u64 => Ok(Some(is_made)),
            // The peer has finished this window and begun the next.
            Some(1) => Ok(Some(was_made)),
            Some(_) => Err(LinkFault::Protocol("a report on another window")),
            None if peer.has_ended => Err(peer.fault()),
            None => Ok(None),
        }
    }

    fn assembled(&self, opening: Opening) -> io::Result<Window> {
        let Opening { bytes, place, memory, are_made } = opening;
        let (memory, place) = (memory?, place.ok_or(io::ErrorKind::OutOfMemory)?);
        if are_made.contains(&Some(false)) {
            // No rank will use it: every rank has reported.
            place.free_part(&self.segment, self.own);
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
