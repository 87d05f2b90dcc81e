//! A rendezvous message: long, and copied by its receiver from the sender's memory.
//!
//! The producer announces the message's address. Both halves write the progress of the read to one
//! word. `../README.md` argues the order of their writes, and why overwritten bytes are never taken
//! for the message.

use std::cell::{Cell, UnsafeCell};
use std::fmt;

use super::memory::INLINE_BYTES;
use crate::shm::cma::PeerMemory;

/// In the length field of a cell's mark: the cell announces a rendezvous message.
pub(super) const RENDEZVOUS: u32 = u32::MAX;
/// Bytes of a cell's payload that hold the message's address and length.
pub(super) const SOURCE_BYTES: usize = 16;

/// The address and length of a message in its sender's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Source {
    pub(super) fn encode(self) -> [u8; SOURCE_BYTES] {
        let mut bytes = [0; SOURCE_BYTES];
        bytes[..8].copy_from_slice(&(self.at as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&(self.bytes as u64).to_le_bytes());
        bytes
    }

    /// Decodes an address and length; `None` if no message can lie there.
    pub(super) fn decode(bytes: &[u8; SOURCE_BYTES]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk()?;
        let (len, _) = rest.split_first_chunk()?;
        let at = usize::try_from(u64::from_le_bytes(*at)).ok()?;
        let bytes = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let fits = bytes > 0 && bytes <= BYTES_MAX && at.checked_add(bytes).is_some();
        fits.then_some(Self { at, bytes })
    }
}

/// No memory is longer, and the word of a `State` can hold it.
const BYTES_MAX: usize = usize::MAX >> 3;

/// The value of the rendezvous word, which both halves write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The consumer does not permit rendezvous messages. A new ring begins so.
    Shut,
    /// The consumer permits them, and has read this many bytes of the last one.
    Open(usize),
    /// The consumer has read this many bytes, and can read no more of this message or of a later
    /// one.
    Refused(usize),
    /// The producer has withdrawn the message.
    Withdrawn,
}

impl State {
    pub(super) const fn word(self) -> u64 {
        match self {
            Self::Shut => 0,
            Self::Open(bytes) => 1 | (bytes as u64) << 2,
            Self::Refused(bytes) => 2 | (bytes as u64) << 2,
            Self::Withdrawn => 3,
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "on 32 bits no offer is longer")]
    pub(super) const fn of(word: u64) -> Self {
        let bytes = (word >> 2) as usize;
        match word & 3 {
            0 => Self::Shut,
            1 => Self::Open(bytes),
            2 => Self::Refused(bytes),
            _ => Self::Withdrawn,
        }
    }
}

const _: () = assert!(SOURCE_BYTES <= INLINE_BYTES);

/// The rendezvous message at the front, and the progress of the read.
#[derive(Default)]
pub(super) struct Pull {
    /// The sender's memory; `None` while rendezvous messages are not permitted.
    pub(super) peer: Option<PeerMemory>,
    pub(super) source: Cell<Source>,
    /// Bytes read.
    pub(super) read: Cell<usize>,
    /// The range of `ahead` that is read and not consumed.
    pub(super) kept: Cell<(usize, usize)>,
    /// Bytes that were read ahead.
    pub(super) ahead: UnsafeCell<Vec<u8>>,
}

impl Pull {
    /// The bytes that were read ahead and not consumed.
    pub(super) fn kept(&self) -> Option<&[u8]> {
        let (begin, end) = self.kept.get();
        // SAFETY: `ahead` changes only in `Consumer::pull_ahead`, and only while none of it is
        // kept. Bytes stay kept until `Consumer::consume_pulled`, which takes `&mut` and so ends
        // this loan.
        let ahead = unsafe { &*self.ahead.get() };
        (begin < end).then(|| &ahead[begin..end])
    }

    /// The address of the next unread byte in the peer's memory.
    pub(super) fn next(&self) -> usize {
        self.source.get().at + self.read.get()
    }

    pub(super) fn left(&self) -> usize {
        self.source.get().bytes - self.read.get()
    }
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, source, read, kept, ahead: _ } = self;
        let mut shown = f.debug_struct("Pull");
        shown.field("peer", peer).field("source", source).field("read", read).field("kept", kept);
        shown.finish_non_exhaustive()
    }
}
