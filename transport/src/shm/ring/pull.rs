//! The consumer's side of a rendezvous: reads from the producer's memory.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use ringfold_types::limits::FRAGMENT_ALIGN;

use super::consumer::{Consumer, Front};
use super::memory::Broken;
use super::rendezvous::{RENDEZVOUS, SOURCE_BYTES, Source, State};
use crate::shm::cma::PeerMemory;
use crate::sys::{copy, copy_bytes};

/// Bytes read ahead at a time. They fit the cache.
const PULL_BYTES: usize = 64 * 1024;
/// Longest read straight into the caller's memory, in bytes. The cost of a system call is small for
/// this length. The caller has other links to serve, and a producer that sees progress does not
/// park.
const STRAIGHT_BYTES_MAX: usize = 1024 * 1024;
/// Offsets within pages from source to destination for which the kernel's copy is several times
/// slower on some CPUs; see `sys::copy`. For these, a read ahead and a second copy are faster.
const UNLUCKY: RangeInclusive<usize> = 1..=31;
const PAGE_BYTES: usize = 4096;
/// Shortest part of a message that is read straight into the caller's memory, in bytes.
const STRAIGHT_BYTES: usize = 16 * 1024;

/// The result of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    All,
    /// The producer has withdrawn the message. No more messages will come.
    Withdrawn,
    /// This process cannot read the peer's memory. The producer sends the rest by cells.
    Refused,
}

impl<M> Consumer<M> {
    /// Permits rendezvous messages of `peer`, whose memory this process can read, from now on.
    /// Opens the word on the first call only: later it may hold the progress of a message, or a
    /// withdrawal.
    pub(crate) fn permit_rendezvous(&mut self, peer: PeerMemory) {
        if self.pull.peer.replace(peer).is_none() {
            self.ring.rendezvous().store(State::Open(0).word(), Ordering::Release);
        }
    }

    /// The tag of the message at the front, if it is a rendezvous message with unread bytes. Looks
    /// only at the result of the last `front`.
    #[inline]
    pub(crate) fn rendezvous_tag(&self) -> Option<u32> {
        let front = self.front.get();
        (front.bytes == RENDEZVOUS && self.pull.left() > 0).then_some(front.tag)
    }

    /// Reads the address and length from the cell at `next`. Returns whether they are valid.
    #[cold]
    pub(super) fn read_source(&self) -> bool {
        let mut bytes = [0; SOURCE_BYTES];
        let payload = self.ring.cell(self.next.get()).payload;
        // SAFETY: the payload of a cell is longer, and the producer wrote it before the mark that
        // `peek` acquired.
        unsafe { copy_bytes(payload.as_ptr(), bytes.as_mut_ptr(), SOURCE_BYTES) };
        let source = Source::decode(&bytes).filter(|_| self.pull.peer.is_some());
        self.pull.source.set(source.unwrap_or_default());
        self.pull.read.set(0);
        source.is_some()
    }

    /// Reads the next part of the rendezvous message at the front into memory of this half, where
    /// `front` finds it. Returns whether the producer should be woken. No byte of the message may
    /// be lent.
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

    /// Reads the next part of the rendezvous message at the front into `dst`. Returns its length,
    /// and whether the producer should be woken. All bytes that were read ahead must be consumed.
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

    /// Gives back the first `bytes` bytes that were read ahead, and advances to the next cell at
    /// the end of the message. Returns whether the producer got credit.
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

    /// Whether the producer waits for nothing more of this message.
    fn is_over(&self, outcome: Read) -> bool {
        outcome == Read::Refused || outcome == Read::All && self.pull.left() == 0
    }

    /// Reads the next bytes of the rendezvous message into `into`, and writes the progress to the
    /// word.
    fn read(&self, into: &mut [u8]) -> Result<Read, Broken> {
        let (word, pull) = (self.ring.rendezvous(), &self.pull);
        let before = pull.read.get();
        let expected = State::Open(before).word();
        // A hint that the read is worth while; the mark has already ordered the announcement.
        let found = word.load(Ordering::Relaxed);
        if found != expected {
            return self.unexpected(found);
        }
        let Some(peer) = pull.peer else {
            return self.fail("a rendezvous message that was not permitted");
        };
        let (next, outcome) = match peer.read(pull.next(), into) {
            Ok(()) => (State::Open(before + into.len()), Read::All),
            Err(why) => {
                tracing::info!("a peer's long messages are copied twice from now on: {why}");
                (State::Refused(before), Read::Refused)
            }
        };
        // Release: the producer overwrites the bytes only after it has seen this. If the producer
        // has withdrawn the message, the bytes may be anything and are discarded.
        let exchanged =
            word.compare_exchange(expected, next.word(), Ordering::Release, Ordering::Relaxed);
        if let Err(found) = exchanged {
            return self.unexpected(found);
        }
        match outcome {
            Read::All => pull.read.set(before + into.len()),
            _ => {
                // The rest comes by cells.
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
            _ => self.fail("a rendezvous word that differs from the bytes read"),
        }
    }
}
