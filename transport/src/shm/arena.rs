//! Places of windows in the segment, and the return of their pages to the system.
//!
//! ```text
//! leases    number of ranks that have dropped the window
//! parts     one per slot
//! ```
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::segment::{PART_BYTES, Segment, WINDOWS_BYTES};
use crate::sys::{Lease, Mapping};

/// Bytes of a large page. Parts of at least this size begin at a multiple of it.
const LARGE_BYTES: u64 = 2 * 1024 * 1024;

/// The part of the segment that is free for windows.
#[derive(Debug)]
pub(super) struct Arena {
    next: u64,
    end: u64,
}

/// The place of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: u64,
    /// Distance from one part to the next in bytes.
    stride: u64,
    /// Offset of the first part from `at` in bytes.
    pub(super) first: u64,
    ranks: usize,
}

/// A window that the ranks are making.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) bytes: usize,
    pub(super) place: Option<Place>,
    /// The mapping of the whole window, or the reason why this rank's part does not exist.
    pub(super) memory: io::Result<Mapping>,
    /// By slot: whether that rank has its part; `None` while the rank has not reported.
    pub(super) are_made: Vec<Option<bool>>,
}

/// Memory that all parts of a window keep alive. When the last rank drops its last part, the pages
/// go back to the system.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) segment: Arc<Segment>,
    pub(super) memory: Mapping,
    pub(super) place: Place,
}

impl Arena {
    pub(super) fn of(segment: &Segment) -> Self {
        let begin = segment.layout().windows_at();
        Self { next: begin.next_multiple_of(LARGE_BYTES), end: begin + WINDOWS_BYTES }
    }

    /// Reserves the place of a window with `bytes` bytes for each of `ranks` ranks. All ranks
    /// compute the same place. Returns `None` if no space of that length is left.
    pub(super) fn reserve(&mut self, bytes: usize, ranks: usize) -> Option<Place> {
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
    pub(super) fn bytes(self) -> io::Result<usize> {
        let bytes = self.first + self.stride * self.ranks as u64;
        usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// The range of the part of `slot`, `bytes` bytes long, in the window.
    pub(super) fn part(self, slot: usize, bytes: usize) -> io::Result<Range<usize>> {
        let start = usize::try_from(self.first + self.stride * slot as u64);
        let start = start.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(start..start + bytes)
    }

    /// Returns the pages of the part of `slot` to the system.
    pub(super) fn free_part(self, segment: &Segment, slot: usize) {
        segment.free(self.at + self.first + self.stride * slot as u64, self.stride);
    }
}

impl Lease for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.segment.is_ours() {
            return;
        }
        // SAFETY: the mapping begins with a page of its own, and its first word is only ever
        // accessed as this atomic.
        let ended: &AtomicU32 = unsafe { self.memory.base().cast().as_ref() };
        // Acquire and release: the last rank's `free` comes after all other ranks' accesses to the
        // pages.
        let before = ended.fetch_add(1, Ordering::AcqRel);
        if before as usize + 1 == self.place.ranks {
            let bytes = self.place.first + self.place.stride * self.place.ranks as u64;
            self.segment.free(self.place.at, bytes);
        }
    }
}
