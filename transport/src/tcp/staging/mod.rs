//! The staging buffer of arriving bytes: a decoder of frames, without a socket.
//!
//! The reader appends bytes at the back (`free`, `filled`), and the receiver takes them at the
//! front as fragments of one frame (`lent`, `take`). No element spans two fragments: a fragment
//! ends at a multiple of `limits::FRAGMENT_ALIGN` within its frame, or at the frame's end.

use ringfold_types::limits::FRAGMENT_ALIGN;

use crate::contract::Fragment;
use crate::sys::copy;
use crate::tcp::frame::{BadHeader, HEADER_BYTES, Header};

/// Arrived bytes of one connection that are not consumed.
#[derive(Debug)]
pub struct Staging {
    capacity: usize,
    /// Allocated by `prepare` or on first use.
    bytes: Vec<u8>,
    head: usize,
    tail: usize,
    frame: Option<Open>,
    bad: Option<BadHeader>,
}

/// The frame whose payload is at the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) tag: u32,
    /// Bytes of payload that are not consumed, arrived or not.
    pub(super) left: usize,
    /// Bytes of payload that are consumed.
    done: usize,
}

impl Staging {
    /// Makes a buffer of `capacity` bytes, allocated when the first bytes arrive.
    ///
    /// # Panics
    /// If `capacity` is below 64, too little for a header and an element.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        assert!(capacity >= 64, "staging too small to hold a header and an element");
        Self { capacity, bytes: Vec::new(), head: 0, tail: 0, frame: None, bad: None }
    }

    /// Bytes in the buffer that are not consumed, headers included.
    #[must_use]
    pub const fn live(&self) -> usize {
        self.tail - self.head
    }

    /// Allocates now, which spares a later call the allocation.
    pub(super) fn prepare(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.capacity];
        }
    }

    /// Returns the room for bytes that arrive next. The caller writes to its front and then calls
    /// `filled`. It is empty only if there is something to lend or the stream is invalid.
    pub fn free(&mut self) -> &mut [u8] {
        self.prepare();
        let live = self.live();
        // Payload lies at multiples of the alignment, which suits vector loads.
        let base = match self.frame {
            Some(frame) => frame.done % FRAGMENT_ALIGN,
            None => FRAGMENT_ALIGN - HEADER_BYTES,
        };
        if live == 0 {
            (self.head, self.tail) = (base, base);
        } else if self.head > base && self.cramped() && live <= self.capacity / 4 {
            self.bytes.copy_within(self.head..self.tail, base);
            (self.head, self.tail) = (base, base + live);
        }
        &mut self.bytes[self.tail..]
    }

    /// Whether it pays to read more now rather than after the receiver has consumed something.
    #[must_use]
    pub(super) const fn is_roomy(&self) -> bool {
        self.bad.is_none() && (!self.cramped() || self.live() <= self.capacity / 4)
    }

    const fn cramped(&self) -> bool {
        self.capacity - self.tail < self.capacity / 2
    }

    /// Records that the first `bytes` bytes of `free` were written.
    ///
    /// # Panics
    /// If `free` had fewer.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes.len() - self.tail, "more filled than was free");
        self.tail += bytes;
        self.open_next();
    }

    /// The fragment at the front, if enough of it has arrived.
    #[must_use]
    pub fn lent(&self) -> Option<Fragment<'_>> {
        let frame = self.frame?;
        let live = self.live();
        let bytes = if live >= frame.left {
            frame.left
        } else {
            whole(frame.done + live).saturating_sub(frame.done)
        };
        (bytes > 0)
            .then(|| Fragment { tag: frame.tag, bytes: &self.bytes[self.head..self.head + bytes] })
    }

    /// Gives back the first `bytes` bytes that `lent` returned.
    ///
    /// # Panics
    /// If `lent` returned fewer.
    pub fn take(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let lent = self.lent().map_or(0, |fragment| fragment.bytes.len());
        assert!(bytes <= lent, "consumed more than was readable");
        self.head += bytes;
        self.pass(bytes);
    }

    /// The reason why the bytes after the lent ones are invalid.
    #[must_use]
    pub const fn bad(&self) -> Option<BadHeader> {
        self.bad
    }

    /// The frame whose payload comes next, if its header has arrived.
    pub(super) const fn frame(&self) -> Option<Open> {
        self.frame
    }

    /// Moves all bytes, which are all payload of the open frame, to the front of `dst`.
    pub(super) fn unload(&mut self, dst: &mut [u8]) -> usize {
        let live = self.live();
        copy(&mut dst[..live], &self.bytes[self.head..self.tail]);
        self.head = self.tail;
        live
    }

    /// Puts back bytes at the front of the open frame. The buffer must be empty.
    pub(super) fn stash(&mut self, bytes: &[u8]) {
        copy(&mut self.free()[..bytes.len()], bytes);
        self.tail += bytes.len();
    }

    /// Counts `bytes` bytes of the open frame as consumed; they are no longer, or never were, in
    /// the buffer.
    pub(super) fn pass(&mut self, bytes: usize) {
        let Some(frame) = &mut self.frame else { return };
        frame.left -= bytes;
        frame.done += bytes;
        if frame.left == 0 {
            self.frame = None;
            self.open_next();
        }
    }

    /// Reads the header at the front, if it has arrived.
    fn open_next(&mut self) {
        if self.frame.is_some() || self.bad.is_some() {
            return;
        }
        let Some(header) = self.bytes[self.head..self.tail].first_chunk() else { return };
        match Header::decode(*header) {
            Ok(Header { tag, len }) => {
                self.frame = Some(Open { tag, left: len, done: 0 });
                self.head += HEADER_BYTES;
            }
            Err(bad) => {
                self.bad = Some(bad);
                self.head = self.tail;
            }
        }
    }
}

impl Open {
    /// How many of `bytes` more bytes can be counted as consumed without splitting an element.
    pub(super) const fn whole(self, bytes: usize) -> usize {
        if bytes >= self.left {
            return self.left;
        }
        whole(self.done + bytes).saturating_sub(self.done)
    }
}

const fn whole(bytes: usize) -> usize {
    bytes - bytes % FRAGMENT_ALIGN
}

#[cfg(test)]
mod tests;
