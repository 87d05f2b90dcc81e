//! The layout of a ring.
//!
//! ```text
//! 0      cells    64 lines: mark (sequence, length), note (tag, place), 48 bytes of payload
//! 4096   credit   one line: number of cells that the consumer has finished with
//! 4160   rdv      one line: progress of the consumer's reads from the producer's memory
//! 8192   data     512 KiB: payloads that are too long for a cell, each from a line's start on
//! ```
//!
//! Only the producer writes cells and data, only the consumer writes the credit, and both write the
//! rendezvous word. Integers are in the host's byte order: a ring never leaves its host.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::sys::Mapping;

/// The reason why a half of a ring can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shm) enum Broken {
    /// The other half wrote something that no correct half writes.
    Protocol(&'static str),
    /// The system has no memory for more pages of the ring.
    Memory,
}

/// Cells of a ring; a power of two.
pub(super) const CELLS: u32 = 64;
/// Bytes of a cache line, of a cell, and of the unit of data allocation.
pub(super) const LINE_BYTES: u32 = 64;
/// Longest payload within a cell, in bytes.
pub(super) const INLINE_BYTES: usize = 48;
/// Bytes for longer payloads; a power of two. It fits a core's own caches, and is twice the best
/// size for messages that stay in them. For long messages the next lap then begins in the cache
/// that cores share, which is faster than to take lines out of another core's cache.
pub(super) const DATA_BYTES: u32 = 512 * 1024;
/// Longest payload of one cell, in bytes. Long messages are split into such pieces: the consumer
/// reads one in cache while the producer writes the next.
pub(super) const PIECE_BYTES: u32 = 16 * 1024;
/// Cells that the consumer may finish with before it must return credit.
pub(super) const CREDIT_CELLS: u32 = CELLS / 4;
/// Bytes of data that the consumer may finish with before it must return credit.
pub(super) const CREDIT_BYTES: u32 = DATA_BYTES / 4;
/// Bytes of a whole ring.
pub(crate) const RING_BYTES: usize = DATA_AT + DATA_BYTES as usize;

/// Bytes at the start that must have pages before the halves are made. Pages of the data are made
/// on first use.
pub(crate) const HEAD_BYTES: usize = DATA_AT;

const PAYLOAD_AT: usize = 16;
const CREDIT_AT: usize = 4096;
const RENDEZVOUS_AT: usize = CREDIT_AT + LINE_BYTES as usize;
const DATA_AT: usize = 8192;

const _: () = assert!((CELLS * LINE_BYTES) as usize <= CREDIT_AT && RENDEZVOUS_AT < DATA_AT);
const _: () = assert!(PAYLOAD_AT + INLINE_BYTES == LINE_BYTES as usize);
const _: () = assert!(CELLS.is_power_of_two() && DATA_BYTES.is_power_of_two());
const _: () = assert!(DATA_BYTES.is_multiple_of(PIECE_BYTES));

/// The owner of a ring's memory, which keeps it alive and makes its pages.
pub(crate) trait Owner {
    /// Ensures that the `bytes` bytes of the ring from `at` on have pages.
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

/// A line of the ring that announces a payload.
pub(super) struct CellLine<'a> {
    /// Sequence number in the lower half, bytes of payload in the upper. The producer writes it
    /// last.
    pub(super) mark: &'a AtomicU64,
    /// Tag in the lower half, offset in the data in the upper.
    pub(super) note: &'a AtomicU64,
    /// A payload of up to `INLINE_BYTES` bytes.
    pub(super) payload: NonNull<u8>,
}

impl<M> Ring<M> {
    /// One half's view of the ring at `base`.
    ///
    /// # Safety
    /// `base` is aligned to a cache line. The `RING_BYTES` bytes from there on are readable and
    /// writable while `owner` lives, and are only accessed as a ring. They were zero when the first
    /// half was made. Only one `Producer` and one `Consumer` are ever made of them.
    pub(crate) unsafe fn new(base: NonNull<u8>, owner: M) -> Self {
        debug_assert!(base.addr().get().is_multiple_of(LINE_BYTES as usize));
        Self { base, owner }
    }

    /// The line of cell number `index`, counted over all laps.
    #[inline]
    pub(super) fn cell(&self, index: u32) -> CellLine<'_> {
        let at = ((index % CELLS) * LINE_BYTES) as usize;
        // SAFETY: below 64 lines, so within the ring by the contract of `new`. Both halves access
        // the first 16 bytes of a cell as `AtomicU64`, for which they are aligned.
        unsafe {
            let line = self.base.add(at);
            CellLine {
                mark: line.cast::<AtomicU64>().as_ref(),
                note: line.add(8).cast::<AtomicU64>().as_ref(),
                payload: line.add(PAYLOAD_AT),
            }
        }
    }

    /// The number of cells that the consumer has finished with.
    #[inline]
    pub(super) fn credit(&self) -> &AtomicU32 {
        // SAFETY: within the ring by the contract of `new`, aligned, and always accessed as an
        // atomic.
        unsafe { self.base.add(CREDIT_AT).cast::<AtomicU32>().as_ref() }
    }

    /// The rendezvous word: the progress of the rendezvous message, as a `State`.
    #[inline]
    pub(super) fn rendezvous(&self) -> &AtomicU64 {
        // SAFETY: as in `credit`.
        unsafe { self.base.add(RENDEZVOUS_AT).cast::<AtomicU64>().as_ref() }
    }

    /// The address of byte `at` of the data.
    #[inline]
    pub(super) fn data(&self, at: u32) -> NonNull<u8> {
        assert!(at < DATA_BYTES);
        // SAFETY: within the ring by the contract of `new` and the assertion.
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

/// Joins two 32-bit numbers in one word, the first in the lower half.
#[inline]
pub(super) const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Splits a word into its two numbers.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each half is 32 bits")]
pub(super) const fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Bytes of data that a payload of `bytes` bytes occupies.
#[inline]
pub(super) const fn occupied(bytes: u32) -> u32 {
    bytes.next_multiple_of(LINE_BYTES)
}
