//! The bytes that arrive from an aggregator. Short messages arrive by one system call. The payload
//! of a long one goes straight to its slot.

use super::way::Way;
use crate::offload::error::OffloadError;
use crate::tcp::socket::Read;

/// Bytes of the buffer.
const BUFFER_BYTES: usize = 4096;

/// A buffer between the way and the receiver.
#[derive(Debug)]
pub(super) struct Incoming {
    buffer: Box<[u8; BUFFER_BYTES]>,
    start: usize,
    end: usize,
}

/// The progress of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The destination is full.
    Whole,
    /// More bytes must arrive.
    Part,
    /// The stream has ended.
    End,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self { buffer: Box::new([0; BUFFER_BYTES]), start: 0, end: 0 }
    }

    /// Moves bytes to `dst` behind the first `filled` of them, and raises `filled`.
    pub(super) fn receive(
        &mut self,
        way: &mut Way,
        dst: &mut [u8],
        filled: &mut usize,
    ) -> Result<Received, OffloadError> {
        loop {
            let rest = &mut dst[*filled..];
            if rest.is_empty() {
                return Ok(Received::Whole);
            }
            let buffered = &self.buffer[self.start..self.end];
            if !buffered.is_empty() {
                let count = buffered.len().min(rest.len());
                rest[..count].copy_from_slice(&buffered[..count]);
                self.start += count;
                *filled += count;
                continue;
            }
            let is_long = rest.len() >= BUFFER_BYTES;
            let into = if is_long { rest } else { &mut self.buffer[..] };
            match way.read(into)? {
                Read::Bytes(count) if is_long => *filled += count,
                Read::Bytes(count) => (self.start, self.end) = (0, count),
                Read::NotYet => return Ok(Received::Part),
                Read::End => return Ok(Received::End),
            }
        }
    }
}
