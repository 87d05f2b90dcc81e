//! Where arriving bytes wait: the decoder of frames, without a socket.
//!
//! Bytes are appended at the back as the socket gives them (`free`, `filled`), and lent at the
//! front as fragments of one frame (`lent`, `take`). No element straddles two fragments: what is
//! lent ends at a multiple of `limits::FRAGMENT_ALIGN` within its frame, or at the frame's end.

use ringfold_types::limits::FRAGMENT_ALIGN;

use crate::contract::Fragment;
use crate::sys::copy;
use crate::tcp::frame::{BadHeader, HEADER_BYTES, Header};

/// Bytes that have arrived on one connection and were not consumed.
#[derive(Debug)]
pub struct Staging {
    capacity: usize,
    /// Allocated by `prepare`, or on first use.
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
    /// Bytes of payload that were not consumed, whether they have arrived or not.
    pub(super) left: usize,
    /// Bytes of payload that were consumed.
    done: usize,
}

impl Staging {
    /// A place for `capacity` bytes, which are allocated when the first arrive.
    ///
    /// # Panics
    /// If `capacity` is below 64, where a frame might not fit as far as it must.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        assert!(capacity >= 64, "staging too small to hold a header and an element");
        Self { capacity, bytes: Vec::new(), head: 0, tail: 0, frame: None, bad: None }
    }

    /// Bytes here that were not consumed, headers included.
    #[must_use]
    pub const fn live(&self) -> usize {
        self.tail - self.head
    }

    /// Allocates, lest that happens in a later call.
    pub(super) fn prepare(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.capacity];
        }
    }

    /// Room for bytes that arrive next. Write to its front, then call `filled`. Empty only if there
    /// is something to lend or the stream is bad.
    pub fn free(&mut self) -> &mut [u8] {
        self.prepare();
        let live = self.live();
        // Payload lies at multiples of the alignment, which vector loads like.
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

    /// Whether it pays to read more now, rather than after something was consumed.
    #[must_use]
    pub(super) const fn is_roomy(&self) -> bool {
        self.bad.is_none() && (!self.cramped() || self.live() <= self.capacity / 4)
    }

    const fn cramped(&self) -> bool {
        self.capacity - self.tail < self.capacity / 2
    }

    /// Says that the first `bytes` of `free` were written.
    ///
    /// # Panics
    /// If that is more than `free` had.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes.len() - self.tail, "more filled than was free");
        self.tail += bytes;
        self.open_next();
    }

    /// The fragment at the front, if any of it has arrived as far as it can be lent.
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

    /// Gives back the first `bytes` of what `lent` gave.
    ///
    /// # Panics
    /// If that is more than `lent` gave.
    pub fn take(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let lent = self.lent().map_or(0, |fragment| fragment.bytes.len());
        assert!(bytes <= lent, "consumed more than was readable");
        self.head += bytes;
        self.pass(bytes);
    }

    /// Why nothing after what is lent can be understood.
    #[must_use]
    pub const fn bad(&self) -> Option<BadHeader> {
        self.bad
    }

    /// The frame whose payload comes next, if its header has arrived.
    pub(super) const fn frame(&self) -> Option<Open> {
        self.frame
    }

    /// Moves everything here, all of it payload of the open frame, to the front of `dst`.
    pub(super) fn unload(&mut self, dst: &mut [u8]) -> usize {
        let live = self.live();
        copy(&mut dst[..live], &self.bytes[self.head..self.tail]);
        self.head = self.tail;
        live
    }

    /// Puts back bytes at the front of the open frame. Nothing else may be here.
    pub(super) fn stash(&mut self, bytes: &[u8]) {
        copy(&mut self.free()[..bytes.len()], bytes);
        self.tail += bytes.len();
    }

    /// Counts `bytes` of the open frame as consumed, which are no longer or never were here.
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
    /// How many of `bytes` more can be counted as consumed, elements kept whole.
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
