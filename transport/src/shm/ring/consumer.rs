//! The half of a ring that lends payloads and returns their room.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::memory::{
    Broken, CELLS, CREDIT_BYTES, CREDIT_CELLS, DATA_BYTES, INLINE_BYTES, LINE_BYTES, PIECE_BYTES,
    Ring, join, occupied, split,
};
use super::rendezvous::{Pull, RENDEZVOUS};
use crate::sys::copy_bytes;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    pub(super) ring: Ring<M>,
    /// The next cell to read, counted over all laps.
    pub(super) next: Cell<u32>,
    /// Cells for which the producer has got credit, counted over all laps.
    returned: u32,
    /// Bytes of data in the cells from `returned` to `next`.
    unreturned_bytes: u32,
    /// The announcement in the cell at `next`. It is read from shared memory once, so the peer
    /// cannot change it between the check and the use.
    pub(super) front: Cell<Front>,
    /// On the heap, which keeps the fields that every message needs together.
    pub(super) pull: Box<Pull>,
    broken: Cell<Option<Broken>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Front {
    /// 0 if no announcement has been seen in the cell; `RENDEZVOUS` for a rendezvous message.
    pub(super) bytes: u32,
    consumed: u32,
    place: u32,
    pub(super) tag: u32,
}

// SAFETY: only the consumer writes the ring's credit and reads its payloads, whichever thread uses
// it. Everything that it shares with the producer is atomic or ordered by atomics.
unsafe impl<M: Send> Send for Consumer<M> {}

impl<M> Consumer<M> {
    pub(crate) fn new(ring: Ring<M>) -> Self {
        Self {
            ring,
            next: Cell::new(0),
            returned: 0,
            unreturned_bytes: 0,
            front: Cell::new(Front::default()),
            pull: Box::default(),
            broken: Cell::new(None),
        }
    }

    /// The tag and the rest of the payload at the front, if one is announced. Of a rendezvous
    /// message (`rendezvous_tag`) only the bytes that `pull_ahead` has read.
    #[inline]
    pub(crate) fn front(&self) -> Result<Option<(u32, &[u8])>, Broken> {
        let mut front = self.front.get();
        if front.bytes == 0 {
            let Some(announced) = self.peek()? else { return Ok(None) };
            self.front.set(announced);
            front = announced;
        }
        let start = if front.bytes as usize <= INLINE_BYTES {
            self.ring.cell(self.next.get()).payload
        } else if front.bytes == RENDEZVOUS {
            return Ok(self.pull.kept().map(|kept| (front.tag, kept)));
        } else {
            self.ring.data(front.place)
        };
        let left = (front.bytes - front.consumed) as usize;
        // SAFETY: `peek` checked that the payload lies within the cell or the data. The producer
        // wrote it before the mark that `peek` acquired. It does not write to it again before the
        // credit of `consume`, which takes `&mut self` and so ends this loan. Only a producer that
        // holds the job's secret and breaks this protocol could.
        let bytes = unsafe {
            std::slice::from_raw_parts(start.add(front.consumed as usize).as_ptr(), left)
        };
        Ok(Some((front.tag, bytes)))
    }

    /// Gives back the first `bytes` bytes that `front` lent. Returns whether the producer got
    /// credit.
    ///
    /// # Panics
    /// If `bytes` is more than `front` lent.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) -> bool {
        let front = self.front.get_mut();
        if front.bytes == RENDEZVOUS {
            return self.consume_pulled(bytes);
        }
        let left = (front.bytes - front.consumed) as usize;
        assert!(bytes <= left, "consumed {bytes} bytes of {left}");
        if bytes < left || left == 0 {
            #[expect(clippy::cast_possible_truncation, reason = "less than front.bytes")]
            let bytes = bytes as u32;
            front.consumed += bytes;
            return false;
        }
        if front.bytes as usize > INLINE_BYTES {
            self.unreturned_bytes += occupied(front.bytes);
        }
        *front = Front::default();
        self.done()
    }

    /// Advances to the next cell. Returns whether the producer got credit.
    #[inline]
    pub(super) fn done(&mut self) -> bool {
        let next = self.next.get().wrapping_add(1);
        self.next.set(next);
        // The credit line changes hands once for many cells. The README argues why that is not too
        // late.
        let cells = next.wrapping_sub(self.returned);
        let is_due = cells >= CREDIT_CELLS || self.unreturned_bytes >= CREDIT_BYTES;
        if is_due {
            self.give_credit();
        }
        is_due
    }

    #[cold]
    fn give_credit(&mut self) {
        self.returned = self.next.get();
        self.unreturned_bytes = 0;
        // Release: for this rank's reads of the payloads.
        self.ring.credit().store(self.returned, Ordering::Release);
    }

    /// Reads a whole message of a cell into `dst`, if nothing else is announced, in one attempt and
    /// up to `tries` more. Returns whether it did. The producer may have got credit.
    #[inline]
    pub(crate) fn take_short(&mut self, tag: u32, dst: &mut [u8], mut tries: u32) -> bool {
        if dst.len() > INLINE_BYTES || self.broken.get_mut().is_some() {
            return false;
        }
        let next = self.next.get();
        let cell = self.ring.cell(next);
        #[expect(clippy::cast_possible_truncation, reason = "at most INLINE_BYTES")]
        let announced = join(next.wrapping_add(1), dst.len() as u32);
        // Acquire: pairs with the producer's store after its writes of the payload and the note.
        while cell.mark.load(Ordering::Acquire) != announced {
            if tries == 0 {
                return false;
            }
            tries -= 1;
            std::hint::spin_loop();
        }
        let (marked, _) = split(cell.note.load(Ordering::Relaxed));
        if marked != tag || self.front.get_mut().consumed != 0 {
            return false;
        }
        // SAFETY: the payload fits the cell. The producer wrote it before the acquired mark, and
        // does not write to it again before the credit of `done`.
        unsafe { copy_bytes(cell.payload.as_ptr(), dst.as_mut_ptr(), dst.len()) };
        self.front.get_mut().bytes = 0;
        self.done();
        true
    }

    /// Reads the announcement in the cell at `next`, if there is one.
    #[inline]
    fn peek(&self) -> Result<Option<Front>, Broken> {
        let next = self.next.get();
        let cell = self.ring.cell(next);
        // Acquire: pairs with the producer's store after its writes of the payload and the note.
        let mark = cell.mark.load(Ordering::Acquire);
        let (sequence, bytes) = split(mark);
        if sequence != next.wrapping_add(1) || self.broken.get().is_some() {
            return self.unannounced(sequence);
        }
        let (tag, place) = split(cell.note.load(Ordering::Relaxed));
        let fits = match bytes {
            0 => false,
            _ if bytes as usize <= INLINE_BYTES => true,
            RENDEZVOUS => self.read_source(),
            _ => {
                bytes <= PIECE_BYTES
                    && place.is_multiple_of(LINE_BYTES)
                    && place < DATA_BYTES
                    && bytes <= DATA_BYTES - place
            }
        };
        if !fits {
            return self.fail("a payload outside the ring");
        }
        Ok(Some(Front { bytes, consumed: 0, place, tag }))
    }

    /// The result if the cell holds the announcement of the previous lap, or none. Any other
    /// content is an error.
    #[cold]
    fn unannounced(&self, sequence: u32) -> Result<Option<Front>, Broken> {
        let lap_ago = self.next.get().wrapping_add(1).wrapping_sub(CELLS);
        if let Some(broken) = self.broken.get() {
            Err(broken)
        } else if sequence == lap_ago || sequence == 0 {
            Ok(None)
        } else {
            self.fail("an unexpected sequence number")
        }
    }

    #[cold]
    pub(super) fn fail<T>(&self, why: &'static str) -> Result<T, Broken> {
        let broken = Broken::Protocol(why);
        self.broken.set(Some(broken));
        Err(broken)
    }
}

const _: () = assert!(join(1, 2) == 1 | 2 << 32);
