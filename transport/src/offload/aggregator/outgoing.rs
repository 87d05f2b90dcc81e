//! The bytes that a member has handed over and its way to the aggregator has not taken.

use super::way::Way;
use crate::offload::error::OffloadError;

/// The bytes that wait for the way.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// Whether nothing waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Queues a message.
    pub(super) fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
    }

    /// Sends a header and its payload: straight from their memory, or behind what waits.
    pub(super) fn send(
        &mut self,
        way: &mut Way,
        header: &[u8],
        payload: &[u8],
    ) -> Result<(), OffloadError> {
        let mut sent = 0;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            sent = way.write_both(header, payload)?;
        }
        let of_header = sent.min(header.len());
        self.bytes.extend_from_slice(&header[of_header..]);
        self.bytes.extend_from_slice(&payload[sent - of_header..]);
        Ok(())
    }

    /// Sends what waits, as far as the way takes it. Returns whether anything left.
    pub(super) fn flush(&mut self, way: &mut Way) -> Result<bool, OffloadError> {
        if self.is_empty() {
            return Ok(false);
        }
        let sent = way.write(&self.bytes[self.sent..])?;
        self.sent += sent;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        Ok(sent > 0)
    }
}
