//! Accepted bytes that wait at the producer for room in the peer's ring.
//!
//! A link accepts `LINK_BYTES_MIN` bytes before the receiver consumes any, even one byte at a time.
//! A ring has too few cells for that, and more cells would spread the common case over more cache.
//! So the rest of such a burst waits here. Memory is allocated on first use, which is rare.

use std::collections::VecDeque;

use ringfold_types::limits::{FRAGMENT_ALIGN, LINK_BYTES_MIN};

/// Held messages in order, at most `LINK_BYTES_MIN` bytes in total.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// Tags and lengths.
    messages: VecDeque<(u32, usize)>,
    bytes: Vec<u8>,
    /// Bytes at the front of `bytes` that are announced.
    consumed: usize,
}

impl Overflow {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Holds as many of `bytes` as there is room for. Returns their number: all, or a multiple of
    /// the fragment alignment.
    pub(crate) fn hold(&mut self, tag: u32, bytes: &[u8]) -> usize {
        let room = LINK_BYTES_MIN - (self.bytes.len() - self.consumed);
        let held = if bytes.len() <= room { bytes.len() } else { room - room % FRAGMENT_ALIGN };
        if held > 0 {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
            self.bytes.extend_from_slice(&bytes[..held]);
            self.messages.push_back((tag, held));
        }
        held
    }

    /// The oldest message, or the rest of it.
    pub(crate) fn front(&self) -> Option<(u32, &[u8])> {
        let (tag, len) = *self.messages.front()?;
        Some((tag, &self.bytes[self.consumed..self.consumed + len]))
    }

    /// Drops the first `bytes` bytes of the oldest message.
    pub(crate) fn consume(&mut self, bytes: usize) {
        let Some((_, len)) = self.messages.front_mut() else { return };
        *len -= bytes;
        self.consumed += bytes;
        if *len == 0 {
            self.messages.pop_front();
        }
        if self.messages.is_empty() {
            self.bytes.clear();
            self.consumed = 0;
        }
    }
}
