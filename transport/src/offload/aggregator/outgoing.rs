//! The bytes that a member has handed over and its socket has not taken.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::tcp::socket::write;

/// The bytes that wait for the socket.
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
        socket: &OwnedFd,
        header: &[u8],
        payload: &[u8],
    ) -> Result<(), Errno> {
        let mut sent = 0;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            let parts = [IoSlice::new(header), IoSlice::new(payload)];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let mut control = SendAncillaryBuffer::default();
            sent = match retry_on_intr(|| sendmsg(socket, &parts, &mut control, flags)) {
                Err(Errno::AGAIN) => 0,
                result => result?,
            };
        }
        let of_header = sent.min(header.len());
        self.bytes.extend_from_slice(&header[of_header..]);
        self.bytes.extend_from_slice(&payload[sent - of_header..]);
        Ok(())
    }

    /// Sends what waits, as far as the socket takes it. Returns whether anything left.
    pub(super) fn flush(&mut self, socket: &OwnedFd) -> Result<bool, Errno> {
        if self.is_empty() {
            return Ok(false);
        }
        let sent = write(socket, &self.bytes[self.sent..])?;
        self.sent += sent;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        Ok(sent > 0)
    }
}
