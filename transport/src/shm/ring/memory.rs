//! What lies where in a ring.
//!
//! ```text
//! 0      cells    64 lines: mark (sequence, length), note (tag, place), 48 bytes of payload
//! 4096   credit   one line: how many cells the consumer is done with
//! 4160   offer    one line: how far the consumer has read what lies in the producer's memory
//! 8192   data     512 KiB: payloads that are too long for a cell, each from a line's start on
//! ```
//!
//! Cells and data are written by the producer only, credit by the consumer only, the offer's word
//! by both. Integers are in the host's order: a ring never leaves its host.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::sys::Mapping;

/// Why a half of a ring is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shm) enum Broken {
    /// The other end wrote something that a ring's other half does not write.
    Protocol(&'static str),
    /// The system has no memory for more of the ring's pages.
    Memory,
}

/// Cells of a ring; a power of two.
pub(super) const CELLS: u32 = 64;
/// Bytes of a cache line, a cell, and the unit in which data is handed out.
pub(super) const LINE_BYTES: u32 = 64;
/// The longest payload that travels in its cell.
pub(super) const INLINE_BYTES: usize = 48;
/// Bytes for payloads that are longer; a power of two. No more than what a core's own caches keep,
/// and twice as much as suits messages that go around in them: of long ones the next lap then
/// begins in the cache that cores share, which is faster than to take lines out of another's.
pub(super) const DATA_BYTES: u32 = 512 * 1024;
/// The longest payload of one cell. Long messages are cut into such pieces, so that the consumer
/// reads one while the producer writes the next, both in cache.
pub(super) const PIECE_BYTES: u32 = 16 * 1024;
/// Cells that the consumer may be done with before it says so,
pub(super) const CREDIT_CELLS: u32 = CELLS / 4;
/// and bytes of data.
pub(super) const CREDIT_BYTES: u32 = DATA_BYTES / 4;
/// Bytes of a whole ring.
pub(crate) const RING_BYTES: usize = DATA_AT + DATA_BYTES as usize;

/// Bytes of it that must have pages before its halves are made. Those of the data are made as they
/// are used.
pub(crate) const HEAD_BYTES: usize = DATA_AT;

const PAYLOAD_AT: usize = 16;
const CREDIT_AT: usize = 4096;
const OFFER_AT: usize = CREDIT_AT + LINE_BYTES as usize;
const DATA_AT: usize = 8192;

const _: () = assert!((CELLS * LINE_BYTES) as usize <= CREDIT_AT && OFFER_AT < DATA_AT);
const _: () = assert!(PAYLOAD_AT + INLINE_BYTES == LINE_BYTES as usize);
const _: () = assert!(CELLS.is_power_of_two() && DATA_BYTES.is_power_of_two());
const _: () = assert!(DATA_BYTES.is_multiple_of(PIECE_BYTES));

/// The owner of a ring's memory, which keeps it alive and makes pages of it.
pub(crate) trait Owner {
    /// Makes sure that `bytes` bytes from `at` on, which are of the ring, have pages.
    ///
    /// # Errors
    /// The system has no memory for them.
    fn make(&self, at: NonNull<u8>, bytes: usize) -> io::Result<()>;
}

impl Owner for Arc<Mapping> {
    fn make(&self, at: NonNull<u8>, bytes: usize) -> io::Result<()> {
        let start = at.addr().get() - self.base().addr().get();
        Mapping::make(self, start..start + bytes)
    }
}

/// The memory of a ring, as one of its two halves sees it.
pub(crate) struct Ring<M> {
    base: NonNull<u8>,
    owner: M,
}

/// One line of the ring that announces a payload.
pub(super) struct CellLine<'a> {
    /// Sequence number in the lower half, payload bytes in the upper. Written last.
    pub(super) mark: &'a AtomicU64,
    /// Tag in the lower half, start in the data in the upper.
    pub(super) note: &'a AtomicU64,
    /// Where up to `INLINE_BYTES` lie.
    pub(super) payload: NonNull<u8>,
}

impl<M> Ring<M> {
    /// One half's view of the ring at `base`.
    ///
    /// # Safety
    /// From `base` on, aligned to a cache line, `RING_BYTES` bytes are readable and writable as
    /// long as `owner` lives, and are only accessed as rings do. They were zero when the ring's
    /// first half began, and only one `Producer` and one `Consumer` are ever made of them.
    pub(crate) unsafe fn new(base: NonNull<u8>, owner: M) -> Self {
        debug_assert!(base.addr().get().is_multiple_of(LINE_BYTES as usize));
        Self { base, owner }
    }

    /// The line of cell number `index`, counted over all laps.
    #[inline]
    pub(super) fn cell(&self, index: u32) -> CellLine<'_> {
        let at = ((index % CELLS) * LINE_BYTES) as usize;
        // SAFETY: below 64 lines, so within the ring by `new`'s contract. The first 16 bytes of a
        // cell are aligned for `AtomicU64` and accessed as such by both halves.
        unsafe {
            let line = self.base.add(at);
            CellLine {
                mark: line.cast::<AtomicU64>().as_ref(),
                note: line.add(8).cast::<AtomicU64>().as_ref(),
                payload: line.add(PAYLOAD_AT),
            }
        }
    }

    /// How many cells the consumer is done with.
    #[inline]
    pub(super) fn credit(&self) -> &AtomicU32 {
        // SAFETY: within the ring by `new`'s contract, aligned, and always accessed as an atomic.
        unsafe { self.base.add(CREDIT_AT).cast::<AtomicU32>().as_ref() }
    }

    /// How far an offer has been read: a `State`.
    #[inline]
    pub(super) fn offer(&self) -> &AtomicU64 {
        // SAFETY: as `credit`.
        unsafe { self.base.add(OFFER_AT).cast::<AtomicU64>().as_ref() }
    }

    /// Where byte `at` of the data lies.
    #[inline]
    pub(super) fn data(&self, at: u32) -> NonNull<u8> {
        assert!(at < DATA_BYTES);
        // SAFETY: within the ring by `new`'s contract and the assertion.
        unsafe { self.base.add(DATA_AT + at as usize) }
    }
}

impl<M: Owner> Ring<M> {
    /// Makes the pages of `bytes` bytes of the data from byte `at` on.
    pub(super) fn make_data(&self, at: u32, bytes: u32) -> io::Result<()> {
        assert!(at <= DATA_BYTES && bytes <= DATA_BYTES - at);
        self.owner.make(self.data(at), bytes as usize)
    }
}

impl<M> fmt::Debug for Ring<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Two 32-bit numbers in one word, the first in the lower half.
#[inline]
pub(super) const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The two numbers of a word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each half is 32 bits")]
pub(super) const fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Bytes of data that a payload of `bytes` occupies.
#[inline]
pub(super) const fn occupied(bytes: u32) -> u32 {
    bytes.next_multiple_of(LINE_BYTES)
}
