//! The consumer's side of an offer: reads what lies in the producer's memory.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use ringfold_types::limits::FRAGMENT_ALIGN;

use super::consumer::{Consumer, Front};
use super::memory::Broken;
use super::offer::{OFFER, OFFER_BYTES, Offer, State};
use crate::shm::attach::Process;
use crate::sys::{copy, copy_bytes};

/// Bytes read ahead at a time: so many stay in the cache.
const PULL_BYTES: usize = 64 * 1024;
/// The same where they belong: what a call of the kernel costs besides is little then. A caller has
/// other links to look after, and a producer that sees how they get fewer does not go to sleep.
const STRAIGHT_BYTES_MAX: usize = 1024 * 1024;
/// Distances, within pages, from a source to a destination for which the kernel's copy is several
/// times slower on some CPUs (`sys::copy` says why). Reading ahead and copying once more is faster.
const UNLUCKY: RangeInclusive<usize> = 1..=31;
const PAGE_BYTES: usize = 4096;
/// The shortest part of a message that is read straight into the caller's memory.
const STRAIGHT_BYTES: usize = 16 * 1024;

/// What became of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    All,
    /// The producer has taken the offer back. There will be nothing more.
    Withdrawn,
    /// It cannot be read. The producer sends what is left.
    Refused,
}

impl<M> Consumer<M> {
    /// Takes offers from now on, of `peer`, whose memory this process can read. The word is opened
    /// once: later it may say how far an offer was read, or that it was withdrawn.
    pub(crate) fn take_offers(&mut self, peer: Process) {
        if self.pull.peer.replace(peer).is_none() {
            self.ring.offer().store(State::Open(0).word(), Ordering::Release);
        }
    }

    /// The tag of the message at the front, if it is an offer of which something is still to be
    /// read. `front` has looked.
    #[inline]
    pub(crate) fn offered(&self) -> Option<u32> {
        let front = self.front.get();
        (front.bytes == OFFER && self.pull.left() > 0).then_some(front.tag)
    }

    /// Reads what the cell at `next` offers; whether it can be an offer.
    #[cold]
    pub(super) fn look_at_offer(&self) -> bool {
        let mut bytes = [0; OFFER_BYTES];
        let payload = self.ring.cell(self.next.get()).payload;
        // SAFETY: the payload of a cell is longer, and the producer wrote it before the mark that
        // `look` acquired.
        unsafe { copy_bytes(payload.as_ptr(), bytes.as_mut_ptr(), OFFER_BYTES) };
        let offer = Offer::decode(&bytes).filter(|_| self.pull.peer.is_some());
        self.pull.offer.set(offer.unwrap_or_default());
        self.pull.read.set(0);
        offer.is_some()
    }

    /// Reads the next part of the offer at the front into memory of our own, where `front` finds
    /// it. Whether the producer should be woken. Nothing of the offer may be lent.
    #[cold]
    pub(crate) fn pull_ahead(&self) -> Result<bool, Broken> {
        if self.pull.kept().is_some() {
            return Ok(false);
        }
        // SAFETY: nothing is kept, so nothing of it is lent: see `Pull::kept`.
        let ahead = unsafe { &mut *self.pull.ahead.get() };
        ahead.resize(PULL_BYTES + PAGE_BYTES, 0);
        let begin = self.pull.next().wrapping_sub(ahead.as_ptr().addr()) % PAGE_BYTES;
        let end = begin + self.pull.left().min(PULL_BYTES);
        let outcome = self.read(&mut ahead[begin..end])?;
        if outcome == Read::All {
            self.pull.kept.set((begin, end));
        }
        Ok(self.is_over(outcome))
    }

    /// Reads the next part of the offer at the front into `dst`. How many bytes that were, and
    /// whether the producer should be woken. Nothing of the offer may have been read ahead that is
    /// not consumed.
    #[cold]
    pub(crate) fn pull(&mut self, dst: &mut [u8]) -> Result<(usize, bool), Broken> {
        debug_assert!(self.pull.kept().is_none());
        let (left, room) = (self.pull.left(), dst.len().min(STRAIGHT_BYTES_MAX));
        let apart = dst.as_ptr().addr().wrapping_sub(self.pull.next()) % PAGE_BYTES;
        if room < left.min(STRAIGHT_BYTES) || UNLUCKY.contains(&apart) {
            let over = self.pull_ahead()?;
            let Some(kept) = self.pull.kept() else { return Ok((0, over)) };
            let bytes = kept.len().min(room);
            copy(&mut dst[..bytes], &kept[..bytes]);
            return Ok((bytes, self.consume_pulled(bytes) || over));
        }
        let bytes = if room < left { room - room % FRAGMENT_ALIGN } else { left };
        let outcome = self.read(&mut dst[..bytes])?;
        let over = self.is_over(outcome);
        if outcome != Read::All {
            return Ok((0, over));
        }
        Ok((bytes, self.consume_pulled(0) || over))
    }

    /// Gives back the first `bytes` of what was read ahead; goes on to the next cell when nothing
    /// is left of the offer. Whether the producer was told.
    #[cold]
    pub(super) fn consume_pulled(&mut self, bytes: usize) -> bool {
        let (begin, end) = self.pull.kept.get();
        assert!(bytes <= end - begin, "consumed {bytes} bytes of {}", end - begin);
        self.pull.kept.set((begin + bytes, end));
        let is_done = begin + bytes == end && self.pull.left() == 0;
        if is_done {
            self.front.set(Front::default());
        }
        is_done && self.done()
    }

    /// Whether there is nothing more for the producer to wait for.
    fn is_over(&self, outcome: Read) -> bool {
        outcome == Read::Refused || outcome == Read::All && self.pull.left() == 0
    }

    /// Reads what comes next of the offer into `into`, and says so in the word.
    fn read(&self, into: &mut [u8]) -> Result<Read, Broken> {
        let (word, pull) = (self.ring.offer(), &self.pull);
        let before = pull.read.get();
        let expected = State::Open(before).word();
        // Says only whether it is worth while; the mark made the offer known.
        let found = word.load(Ordering::Relaxed);
        if found != expected {
            return self.unexpected(found);
        }
        let Some(peer) = pull.peer else { return self.fail("an offer to who takes none") };
        let (next, outcome) = match peer.read(pull.next(), into) {
            Ok(()) => (State::Open(before + into.len()), Read::All),
            Err(why) => {
                tracing::info!("long messages of a peer go by its ring from now on: {why}");
                (State::Refused(before), Read::Refused)
            }
        };
        // Release: the producer overwrites what was read only when it has seen this. Where it has
        // withdrawn the offer before, what was read may be anything, and does not count.
        let exchanged =
            word.compare_exchange(expected, next.word(), Ordering::Release, Ordering::Relaxed);
        if let Err(found) = exchanged {
            return self.unexpected(found);
        }
        match outcome {
            Read::All => pull.read.set(before + into.len()),
            _ => {
                // The rest comes in cells.
                self.front.set(Front::default());
                self.next.set(self.next.get().wrapping_add(1));
            }
        }
        Ok(outcome)
    }

    #[cold]
    fn unexpected(&self, found: u64) -> Result<Read, Broken> {
        match State::of(found) {
            State::Withdrawn => Ok(Read::Withdrawn),
            _ => self.fail("an offer that says it was read further than it was"),
        }
    }
}
