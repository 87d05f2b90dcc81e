//! The half of a ring that writes payloads and announces them.

use std::sync::atomic::Ordering;

use ringfold_types::limits::{FRAGMENT_ALIGN, LINK_BYTES_MIN};

use super::memory::{
    Broken, CELLS, CREDIT_CELLS, DATA_BYTES, INLINE_BYTES, LINE_BYTES, Owner, PIECE_BYTES, Ring,
    join, occupied,
};
use super::rendezvous::{RENDEZVOUS, SOURCE_BYTES, Source, State};
use crate::overflow::Overflow;
use crate::sys::{Handover, copy_bytes, will_write};

/// Least useful room at the end of the data, in bytes. Less room is skipped: a long message would
/// leave a tiny piece there.
const SPLINTER_BYTES: u32 = 1024;

/// Least bytes of data whose pages are made at a time.
const PAGES_BYTES: u32 = 4096;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    ring: Ring<M>,
    /// Cells announced.
    sent: u32,
    /// Cells that the consumer has finished with, by the last credit that was read.
    credit: u32,
    /// The end of the data in use, counted over all laps.
    data_end: u32,
    /// The beginning of the data in use, by the last credit that was read.
    data_begin: u32,
    /// Bytes of data that have pages.
    made: u32,
    /// Bytes of payload announced, counted over all laps.
    bytes: u32,
    /// The counters after each announced cell. They never come from the consumer.
    after: [After; CELLS as usize],
    overflow: Overflow,
    handover: Handover,
    /// The rendezvous message that the consumer may read.
    rendezvous: Option<RendezvousSend>,
    broken: Option<Broken>,
}

/// A rendezvous message.
#[derive(Clone, Copy, Debug)]
struct RendezvousSend {
    bytes: usize,
    /// Bytes of it that `accepted` has reported as read.
    accepted: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct After {
    data_end: u32,
    bytes: u32,
}

// SAFETY: only the producer writes its part of the ring, whichever thread uses it. Everything that
// it shares with the consumer is atomic or ordered by atomics.
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
            rendezvous: None,
            broken: None,
        }
    }

    /// Announces `bytes` (not empty) in one cell, if they fit and a cell is free. Returns whether
    /// it did.
    #[inline]
    pub(crate) fn push_short(&mut self, tag: u32, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= INLINE_BYTES
            && self.overflow.is_empty()
            && self.rendezvous.is_none()
            && (self.cells_left() > 0 || self.finds_credit());
        if fits {
            self.push_inline(tag, bytes);
        }
        fits
    }

    /// Prefetches, for writing, the cell of the next `push` and the first line of its data, if the
    /// consumer has finished with them. Calls repeat, and to get a line back takes about as long as
    /// the code until the next call.
    #[inline]
    pub(crate) fn expect(&self) {
        if self.cells_left() > 0 {
            will_write(self.ring.cell(self.sent).payload);
        }
        if self.data_end.wrapping_sub(self.data_begin) < DATA_BYTES {
            will_write(self.ring.data(self.data_end % DATA_BYTES));
        }
    }

    /// Whether new credit frees a cell. The next `push` reports errors.
    #[cold]
    fn finds_credit(&mut self) -> bool {
        self.read_credit().is_ok_and(|is_more| is_more)
    }

    /// Announces a front part of `bytes` (not empty) in one cell. Returns its length: all, or a
    /// multiple of the fragment alignment, or 0 if there is no room.
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

    /// Announces `bytes` as a rendezvous message, if the consumer permits that and a cell is free.
    /// Returns whether it did. The bytes must stay unchanged until `accepted` has reported all of
    /// them or `withdraw` has returned. Nothing else can be sent meanwhile.
    pub(crate) fn send_rendezvous(&mut self, tag: u32, bytes: &[u8]) -> Result<bool, Broken> {
        debug_assert!(self.rendezvous.is_none());
        let is_open = matches!(self.state(), State::Open(_));
        if !is_open || !self.overflow.is_empty() {
            return Ok(false);
        }
        if self.cells_left() == 0 && !self.read_credit()? {
            return Ok(false);
        }
        let source = Source { at: bytes.as_ptr().expose_provenance(), bytes: bytes.len() }.encode();
        // The consumer leaves the word alone while there is no rendezvous message; the mark below
        // publishes it.
        self.ring.rendezvous().store(State::Open(0).word(), Ordering::Relaxed);
        let cell = self.ring.cell(self.sent);
        // SAFETY: as in `push_inline`.
        unsafe { copy_bytes(source.as_ptr(), cell.payload.as_ptr(), SOURCE_BYTES) };
        self.publish(tag, RENDEZVOUS, 0);
        self.rendezvous = Some(RendezvousSend { bytes: bytes.len(), accepted: 0 });
        Ok(true)
    }

    /// Whether a rendezvous message is unfinished.
    #[inline]
    pub(crate) fn has_rendezvous(&self) -> bool {
        self.rendezvous.is_some()
    }

    /// Returns how many more bytes of the rendezvous message the consumer has read since the last
    /// call, at most `len`. The message is finished once this has reported all bytes, or all that
    /// the consumer will read.
    pub(crate) fn accepted(&mut self, len: usize) -> Result<usize, Broken> {
        let Some(RendezvousSend { bytes, accepted }) = self.rendezvous else { return Ok(0) };
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let state = self.state();
        let (State::Open(read) | State::Refused(read)) = state else {
            return self
                .fail(Broken::Protocol("a rendezvous word that is neither open nor refused"));
        };
        let is_whole = read == bytes || read.is_multiple_of(FRAGMENT_ALIGN);
        if read < accepted || read > bytes || !is_whole {
            return self.fail(Broken::Protocol("an impossible number of bytes read by rendezvous"));
        }
        let more = (read - accepted).min(len);
        let accepted = accepted + more;
        let is_over = accepted == bytes || state == State::Refused(accepted);
        self.rendezvous = (!is_over).then_some(RendezvousSend { bytes, accepted });
        Ok(more)
    }

    /// Withdraws the rendezvous message, if there is one. The consumer discards reads of it from
    /// now on, and the stream ends there. The consumer need not be woken.
    pub(crate) fn withdraw(&mut self) {
        if self.rendezvous.take().is_some() {
            // Acquire: the consumer's earlier reads come before the caller overwrites the bytes.
            self.ring.rendezvous().swap(State::Withdrawn.word(), Ordering::AcqRel);
        }
    }

    fn state(&self) -> State {
        // Acquire: pairs with the consumer's exchange after its read of the caller's memory.
        State::of(self.ring.rendezvous().load(Ordering::Acquire))
    }

    #[cold]
    fn fail<T>(&mut self, broken: Broken) -> Result<T, Broken> {
        self.broken = Some(broken);
        // No cell is ever free again, so every call reaches `read_credit`.
        self.credit = self.sent.wrapping_sub(CELLS);
        Err(broken)
    }

    /// Announces held bytes as far as there is room. Returns whether it announced any.
    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        let mut moved = false;
        // Taken out for the loop, so `announce` can borrow its bytes.
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

    /// Whether all accepted bytes are announced.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.overflow.is_empty()
    }

    /// Drops the held bytes, because no peer will read them.
    pub(crate) fn abandon(&mut self) {
        self.overflow = Overflow::default();
    }

    #[inline]
    fn cells_left(&self) -> u32 {
        CELLS - self.sent.wrapping_sub(self.credit)
    }

    /// Whether the ring holds at least `LINK_BYTES_MIN` bytes that the consumer has not finished
    /// with, even with credit that the consumer has not returned yet. Tiny messages can use up the
    /// cells earlier.
    fn promise_is_kept(&self) -> bool {
        if self.cells_left() > 0 {
            // Then the data is full: most of it is in use.
            return true;
        }
        let unsaid = self.sent.wrapping_sub(CELLS - CREDIT_CELLS);
        let surely = self.bytes.wrapping_sub(self.after(unsaid).bytes);
        surely as usize >= LINK_BYTES_MIN
    }

    /// The counters after the cell before number `index`.
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

    /// Makes pages for the data up to byte `end`, and at least doubles them: a busy link soon has
    /// all pages, and a link with one message has few.
    #[cold]
    fn make_pages(&mut self, end: u32) -> Result<(), Broken> {
        let end = end.max(2 * self.made).next_multiple_of(PAGES_BYTES).min(DATA_BYTES);
        match self.ring.make_data(self.made, end - self.made) {
            Ok(()) => self.made = end,
            Err(_) => return self.fail(Broken::Memory),
        }
        Ok(())
    }

    /// Reads the consumer's credit; returns whether it has grown.
    fn read_credit(&mut self) -> Result<bool, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        // Acquire: pairs with the consumer's store after its last read of the payloads.
        let credit = self.ring.credit().load(Ordering::Acquire);
        if credit.wrapping_sub(self.credit) > self.sent.wrapping_sub(self.credit) {
            return self.fail(Broken::Protocol("credit for cells that were never sent"));
        }
        let is_more = credit != self.credit;
        if is_more {
            self.credit = credit;
            self.data_begin = self.after(credit).data_end;
        }
        Ok(is_more)
    }

    /// Returns how many of `wanted` bytes (more than fit a cell) fit at the end of the data. Moves
    /// the end to the start of the next lap if the rest of this lap is too short to be useful.
    fn room(&mut self, wanted: u32) -> u32 {
        let whole = wanted.min(PIECE_BYTES);
        loop {
            let free = DATA_BYTES - self.data_end.wrapping_sub(self.data_begin);
            let to_end = DATA_BYTES - self.data_end % DATA_BYTES;
            let room = free.min(to_end);
            // Free space is a multiple of a line, so this is a multiple of the fragment alignment.
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
        // SAFETY: `bytes` fits the cell, and only this half accesses it: the consumer has finished
        // with it (`cells_left`), and reads it again only after the mark below.
        unsafe {
            copy_bytes(bytes.as_ptr(), cell.payload.as_ptr(), bytes.len());
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most INLINE_BYTES")]
        let len = bytes.len() as u32;
        self.bytes = self.bytes.wrapping_add(len);
        self.publish(tag, len, 0);
        bytes.len()
    }

    /// Announces `bytes`, whose length `room` has returned, by the data.
    fn push_data(&mut self, tag: u32, bytes: &[u8]) {
        let place = self.data_end % DATA_BYTES;
        let target = self.ring.data(place);
        // SAFETY: `room` says that this many consecutive bytes are free from `data_end` on: the
        // consumer has finished with them, and reads them again only after the mark below.
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
        // Release: for the payload and the note. The counters are updated while the line travels.
        cell.mark.store(join(index.wrapping_add(1), bytes), Ordering::Release);
        self.sent = index.wrapping_add(1);
        self.after[(index % CELLS) as usize] = After { data_end: self.data_end, bytes: self.bytes };
    }
}

const _: () = assert!(SPLINTER_BYTES.is_multiple_of(LINE_BYTES));
