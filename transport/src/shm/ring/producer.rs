//! The half of a ring that writes payloads and announces them.

use std::sync::atomic::Ordering;

use ringfold_types::limits::{FRAGMENT_ALIGN, LINK_BYTES_MIN};

use super::memory::{
    Broken, CELLS, CREDIT_CELLS, DATA_BYTES, INLINE_BYTES, LINE_BYTES, Owner, PIECE_BYTES, Ring,
    join, occupied,
};
use super::offer::{OFFER, OFFER_BYTES, Offer, State};
use crate::overflow::Overflow;
use crate::sys::{Handover, copy_bytes, will_write};

/// Less room than this at the data's end is skipped, rather than filled with a splinter of a long
/// message.
const SPLINTER_BYTES: u32 = 1024;

/// The least that pages of data are made of at a time.
const PAGES_BYTES: u32 = 4096;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    ring: Ring<M>,
    /// Cells announced, and how many of them the consumer is done with as far as we know.
    sent: u32,
    credit: u32,
    /// Where data ends and, as far as we know, begins; counted over all laps.
    data_end: u32,
    data_begin: u32,
    /// Bytes of data that have pages.
    made: u32,
    /// Bytes of payload announced, over all laps.
    bytes: u32,
    /// What held after each announced cell. The consumer's word is never asked for it.
    after: [After; CELLS as usize],
    overflow: Overflow,
    handover: Handover,
    /// What the consumer may read where it lies.
    offered: Option<Offered>,
    broken: Option<Broken>,
}

/// A message that is offered.
#[derive(Clone, Copy, Debug)]
struct Offered {
    bytes: usize,
    /// Bytes of it that the caller knows to be read.
    accepted: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct After {
    data_end: u32,
    bytes: u32,
}

// SAFETY: a producer is the only one that writes to its part of the ring, from whichever thread it
// is used; all that it shares with the consumer is atomic or ordered by atomics.
unsafe impl<M: Send> Send for Producer<M> {}

impl<M: Owner> Producer<M> {
    pub(crate) fn new(ring: Ring<M>) -> Self {
        Self {
            ring,
            sent: 0,
            credit: 0,
            data_end: 0,
            data_begin: 0,
            made: 0,
            bytes: 0,
            after: [After::default(); CELLS as usize],
            overflow: Overflow::default(),
            handover: Handover::default(),
            offered: None,
            broken: None,
        }
    }

    /// Announces `bytes` (not empty) in one cell, if they fit and there is one. Whether it did.
    #[inline]
    pub(crate) fn push_short(&mut self, tag: u32, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= INLINE_BYTES
            && self.overflow.is_empty()
            && self.offered.is_none()
            && (self.cells_left() > 0 || self.finds_credit());
        if fits {
            self.push_inline(tag, bytes);
        }
        fits
    }

    /// Asks for the cell of the next `push`, and for the first line of its data, if the consumer is
    /// done with them: calls repeat, and what follows takes about as long as to get a line back.
    #[inline]
    pub(crate) fn expect(&self) {
        if self.cells_left() > 0 {
            will_write(self.ring.cell(self.sent).payload);
        }
        if self.data_end.wrapping_sub(self.data_begin) < DATA_BYTES {
            will_write(self.ring.data(self.data_end % DATA_BYTES));
        }
    }

    /// Whether there is a cell after all. What is wrong, the next `push` says.
    #[cold]
    fn finds_credit(&mut self) -> bool {
        self.read_credit().is_ok_and(|is_more| is_more)
    }

    /// Announces a front part of `bytes` (not empty) in one cell; returns how long it is, a
    /// multiple of the fragment alignment unless it is all. 0 if there is no room.
    pub(crate) fn push(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        if !self.overflow.is_empty() {
            self.flush()?;
        }
        if self.overflow.is_empty() {
            let announced = self.announce(tag, bytes)?;
            if announced > 0 || self.promise_is_kept() {
                return Ok(announced);
            }
        }
        Ok(self.overflow.hold(tag, bytes))
    }

    /// Offers `bytes` to be read where they lie, if the consumer does that and there is a cell;
    /// whether it did. They must stay there, unchanged, until `accepted` says that they were read,
    /// or `withdraw` returns; nothing else can be sent meanwhile.
    pub(crate) fn offer(&mut self, tag: u32, bytes: &[u8]) -> Result<bool, Broken> {
        debug_assert!(self.offered.is_none());
        let is_open = matches!(self.state(), State::Open(_));
        if !is_open || !self.overflow.is_empty() {
            return Ok(false);
        }
        if self.cells_left() == 0 && !self.read_credit()? {
            return Ok(false);
        }
        let offer = Offer { at: bytes.as_ptr().expose_provenance(), bytes: bytes.len() }.encode();
        // The consumer lets the word alone while there is no offer; the mark below publishes it.
        self.ring.offer().store(State::Open(0).word(), Ordering::Relaxed);
        let cell = self.ring.cell(self.sent);
        // SAFETY: as in `push_inline`.
        unsafe { copy_bytes(offer.as_ptr(), cell.payload.as_ptr(), OFFER_BYTES) };
        self.publish(tag, OFFER, 0);
        self.offered = Some(Offered { bytes: bytes.len(), accepted: 0 });
        Ok(true)
    }

    /// Whether something is offered.
    #[inline]
    pub(crate) fn is_offering(&self) -> bool {
        self.offered.is_some()
    }

    /// How many bytes of the offer, at most `len`, have been read that no call before has told of.
    /// The offer ends when it told of all, or when the consumer will read no more.
    pub(crate) fn accepted(&mut self, len: usize) -> Result<usize, Broken> {
        let Some(Offered { bytes, accepted }) = self.offered else { return Ok(0) };
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let state = self.state();
        let (State::Open(read) | State::Refused(read)) = state else {
            return self.fail(Broken::Protocol("an offer that is neither open nor refused"));
        };
        let is_whole = read == bytes || read.is_multiple_of(FRAGMENT_ALIGN);
        if read < accepted || read > bytes || !is_whole {
            return self.fail(Broken::Protocol("more or less was read than can be"));
        }
        let more = (read - accepted).min(len);
        let accepted = accepted + more;
        let is_over = accepted == bytes || state == State::Refused(accepted);
        self.offered = (!is_over).then_some(Offered { bytes, accepted });
        Ok(more)
    }

    /// Takes the offer back, if there is one: none of its bytes that the consumer reads from now on
    /// counts. The stream ends there. The consumer need not be woken.
    pub(crate) fn withdraw(&mut self) {
        if self.offered.take().is_some() {
            // Acquire: what it has read before, it has read before its bytes are overwritten.
            self.ring.offer().swap(State::Withdrawn.word(), Ordering::AcqRel);
        }
    }

    fn state(&self) -> State {
        // Acquire: pairs with the consumer's exchange, after it read from the caller's memory.
        State::of(self.ring.offer().load(Ordering::Acquire))
    }

    #[cold]
    fn fail<T>(&mut self, broken: Broken) -> Result<T, Broken> {
        self.broken = Some(broken);
        // No cell is ever left again, so that every call comes to `read_credit`.
        self.credit = self.sent.wrapping_sub(CELLS);
        Err(broken)
    }

    /// Announces what was held back, as far as there is room. Returns whether anything was.
    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        let mut moved = false;
        // Taken out for a moment, so that its bytes can be lent to `announce`.
        let mut overflow = std::mem::take(&mut self.overflow);
        let result = loop {
            let Some((tag, bytes)) = overflow.front() else { break Ok(moved) };
            match self.announce(tag, bytes) {
                Ok(0) => break Ok(moved),
                Ok(announced) => overflow.consume(announced),
                Err(broken) => break Err(broken),
            }
            moved = true;
        };
        self.overflow = overflow;
        result
    }

    /// Whether all that was accepted is announced.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.overflow.is_empty()
    }

    /// Drops what was held back, because nobody will read it.
    pub(crate) fn abandon(&mut self) {
        self.overflow = Overflow::default();
    }

    #[inline]
    fn cells_left(&self) -> u32 {
        CELLS - self.sent.wrapping_sub(self.credit)
    }

    /// Whether the ring holds `LINK_BYTES_MIN` bytes that the consumer is not done with, however
    /// late it says what it is done with. Tiny messages can use up the cells before.
    fn promise_is_kept(&self) -> bool {
        if self.cells_left() > 0 {
            // Then it was data that ran out: most of its 512 KiB are in use.
            return true;
        }
        let unsaid = self.sent.wrapping_sub(CELLS - CREDIT_CELLS);
        let surely = self.bytes.wrapping_sub(self.after(unsaid).bytes);
        surely as usize >= LINK_BYTES_MIN
    }

    /// What held after the cell before number `index`.
    fn after(&self, index: u32) -> After {
        self.after[(index.wrapping_sub(1) % CELLS) as usize]
    }

    fn announce(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        if self.cells_left() == 0 && !self.read_credit()? {
            return Ok(0);
        }
        if bytes.len() <= INLINE_BYTES {
            return Ok(self.push_inline(tag, bytes));
        }
        let wanted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut room = self.room(wanted);
        if room == 0 && self.read_credit()? {
            room = self.room(wanted);
        }
        if room > 0 {
            let end = self.data_end % DATA_BYTES + room;
            if end > self.made {
                self.make_pages(end)?;
            }
            self.push_data(tag, &bytes[..room as usize]);
        }
        Ok(room as usize)
    }

    /// Makes pages for the data up to byte `end`, and as many more as there are: a link that is
    /// used much soon has them all, and one that is used once has few.
    #[cold]
    fn make_pages(&mut self, end: u32) -> Result<(), Broken> {
        let end = end.max(2 * self.made).next_multiple_of(PAGES_BYTES).min(DATA_BYTES);
        match self.ring.make_data(self.made, end - self.made) {
            Ok(()) => self.made = end,
            Err(_) => return self.fail(Broken::Memory),
        }
        Ok(())
    }

    /// Reads how much the consumer is done with; returns whether that is more than before.
    fn read_credit(&mut self) -> Result<bool, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        // Acquire: pairs with the consumer's store, after its last look at the payloads.
        let credit = self.ring.credit().load(Ordering::Acquire);
        if credit.wrapping_sub(self.credit) > self.sent.wrapping_sub(self.credit) {
            return self.fail(Broken::Protocol("credit for what was never sent"));
        }
        let is_more = credit != self.credit;
        if is_more {
            self.credit = credit;
            self.data_begin = self.after(credit).data_end;
        }
        Ok(is_more)
    }

    /// How much of a payload of `wanted` bytes (more than fit a cell) fits at the data's end; moves
    /// the end to the next lap's start where what is left of this one is a splinter.
    fn room(&mut self, wanted: u32) -> u32 {
        let whole = wanted.min(PIECE_BYTES);
        loop {
            let free = DATA_BYTES - self.data_end.wrapping_sub(self.data_begin);
            let to_end = DATA_BYTES - self.data_end % DATA_BYTES;
            let room = free.min(to_end);
            // Free space comes in lines, so this is a multiple of the fragment alignment.
            match room {
                _ if occupied(whole) <= room => return whole,
                _ if room >= SPLINTER_BYTES.min(occupied(whole)) => return room,
                _ if to_end < free => self.data_end = self.data_end.wrapping_add(to_end),
                _ => return 0,
            }
        }
    }

    #[inline]
    fn push_inline(&mut self, tag: u32, bytes: &[u8]) -> usize {
        debug_assert!(bytes.len() <= INLINE_BYTES && self.cells_left() > 0);
        let cell = self.ring.cell(self.sent);
        // SAFETY: `bytes` fits the cell, which is ours alone: the consumer is done with it
        // (`cells_left`) and looks at it again only after the mark below.
        unsafe {
            copy_bytes(bytes.as_ptr(), cell.payload.as_ptr(), bytes.len());
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most INLINE_BYTES")]
        let len = bytes.len() as u32;
        self.bytes = self.bytes.wrapping_add(len);
        self.publish(tag, len, 0);
        bytes.len()
    }

    /// `bytes` is what `room` gave for it.
    fn push_data(&mut self, tag: u32, bytes: &[u8]) {
        let place = self.data_end % DATA_BYTES;
        let target = self.ring.data(place);
        // SAFETY: `room` says that as many bytes are free in a row from `data_end` on: the consumer
        // is done with them and looks at them again only after the mark below.
        unsafe { self.handover.copy(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
        #[expect(clippy::cast_possible_truncation, reason = "at most PIECE_BYTES")]
        let len = bytes.len() as u32;
        self.data_end = self.data_end.wrapping_add(occupied(len));
        self.bytes = self.bytes.wrapping_add(len);
        self.publish(tag, len, place);
        self.expect();
    }

    #[inline]
    fn publish(&mut self, tag: u32, bytes: u32, place: u32) {
        let index = self.sent;
        let cell = self.ring.cell(index);
        cell.note.store(join(tag, place), Ordering::Relaxed);
        // Release, for the payload and the note. The books are kept while the line travels.
        cell.mark.store(join(index.wrapping_add(1), bytes), Ordering::Release);
        self.sent = index.wrapping_add(1);
        self.after[(index % CELLS) as usize] = After { data_end: self.data_end, bytes: self.bytes };
    }
}

const _: () = assert!(SPLINTER_BYTES.is_multiple_of(LINE_BYTES));
