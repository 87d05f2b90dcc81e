//! A long message that its receiver copies from where it lies in the sender's memory.
//!
//! The producer announces where it lies, and both say in one word how far it has been read. Who
//! may change that word when, and why nothing that was overwritten is ever taken for the message,
//! is argued in `../README.md`.

use std::cell::{Cell, UnsafeCell};
use std::fmt;

use super::memory::INLINE_BYTES;
use crate::shm::attach::Process;

/// Stands for the length in the mark of a cell that holds an offer.
pub(super) const OFFER: u32 = u32::MAX;
/// Bytes of a cell's payload that say where a message lies.
pub(super) const OFFER_BYTES: usize = 16;

/// Where a message lies in its sender's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Offer {
    pub(super) fn encode(self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        bytes[..8].copy_from_slice(&(self.at as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&(self.bytes as u64).to_le_bytes());
        bytes
    }

    /// `None` if no message can lie there.
    pub(super) fn decode(bytes: &[u8; OFFER_BYTES]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk()?;
        let (len, _) = rest.split_first_chunk()?;
        let at = usize::try_from(u64::from_le_bytes(*at)).ok()?;
        let bytes = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let fits = bytes > 0 && bytes <= BYTES_MAX && at.checked_add(bytes).is_some();
        fits.then_some(Self { at, bytes })
    }
}

/// No memory is longer, and the word of a `State` holds it.
const BYTES_MAX: usize = usize::MAX >> 3;

/// What the word says that both halves write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The consumer takes no offers. What a ring begins with.
    Shut,
    /// It does, and has read so many bytes of the last one.
    Open(usize),
    /// It has read so many and cannot read more, nor any other offer.
    Refused(usize),
    /// The producer has taken the offer back.
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

const _: () = assert!(OFFER_BYTES <= INLINE_BYTES);

/// The offer at the front, and how far it has been read.
#[derive(Default)]
pub(super) struct Pull {
    /// Whose memory to read; none if offers are not taken.
    pub(super) peer: Option<Process>,
    pub(super) offer: Cell<Offer>,
    /// Bytes read.
    pub(super) read: Cell<usize>,
    /// Bytes that were read ahead: from where on they are not consumed, and where they end.
    pub(super) kept: Cell<(usize, usize)>,
    pub(super) ahead: UnsafeCell<Vec<u8>>,
}

impl Pull {
    /// The bytes that were read ahead and are not consumed.
    pub(super) fn kept(&self) -> Option<&[u8]> {
        let (begin, end) = self.kept.get();
        // SAFETY: `ahead` changes only in `Consumer::pull_ahead`, which lets it alone as long as
        // any of it is kept; and it is kept until `Consumer::consume_pulled`, which takes `&mut`
        // and so ends this loan.
        let ahead = unsafe { &*self.ahead.get() };
        (begin < end).then(|| &ahead[begin..end])
    }

    /// Where what comes next lies, in the peer's memory.
    pub(super) fn next(&self) -> usize {
        self.offer.get().at + self.read.get()
    }

    pub(super) fn left(&self) -> usize {
        self.offer.get().bytes - self.read.get()
    }
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, offer, read, kept, ahead: _ } = self;
        let mut shown = f.debug_struct("Pull");
        shown.field("peer", peer).field("offer", offer).field("read", read).field("kept", kept);
        shown.finish_non_exhaustive()
    }
}
