//! The sending half of a link: frames, and the window that the contract demands.

use std::os::fd::OwnedFd;

use ringfold_types::limits::{FRAGMENT_ALIGN, FRAME_BYTES, LINK_BYTES_MIN};
use rustix::io::Errno;

use super::frame::Header;
use super::socket::{write, write_parts};

/// The sending half of a link.
#[derive(Debug)]
pub(super) struct Writer {
    /// Accepted bytes that the kernel has not taken, headers and payload in wire format. They go
    /// first.
    held: Vec<u8>,
    /// Bytes of `held` that the kernel has taken.
    gone: usize,
    /// Bytes of payload in `held`.
    payload: usize,
    /// Bytes of the current frame that are not accepted yet.
    left: usize,
    /// Bytes after the accepted ones that the kernel has taken already. They are fewer than the
    /// alignment, and the caller passes them again.
    skip: usize,
    /// Whether the kernel may take bytes. Events are edge-triggered, so this remembers them.
    pub(super) writable: bool,
}

impl Default for Writer {
    fn default() -> Self {
        Self { held: Vec::new(), gone: 0, payload: 0, left: 0, skip: 0, writable: true }
    }
}

impl Writer {
    /// Whether bytes wait here for a later `flush`.
    pub(super) const fn is_unsent(&self) -> bool {
        !self.held.is_empty()
    }

    /// See `Transport::send`; for an open connection.
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
        tag: u32,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let is_short = self.left == 0 && bytes.len() <= LINK_BYTES_MIN;
        let accepted = self.write_frame(socket, tag, bytes)?;
        if accepted == bytes.len() || !is_short {
            return Ok(accepted);
        }
        // A short message is accepted even if the kernel is full, as the contract demands.
        Ok(accepted + self.hold(tag, &bytes[accepted..]))
    }

    /// Writes held bytes, as far as the kernel takes them.
    pub(super) fn flush(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        if !self.writable || self.held.is_empty() {
            return Ok(());
        }
        let rest = &self.held[self.gone..];
        let taken = write(socket, rest)?;
        self.writable = taken == rest.len();
        self.gone += taken;
        if self.gone == self.held.len() {
            self.forget();
        }
        Ok(())
    }

    /// Drops the held bytes.
    pub(super) fn forget(&mut self) {
        self.held.clear();
        self.gone = 0;
        self.payload = 0;
    }

    /// Accepts bytes that the kernel cannot take now, up to the window.
    pub(super) fn hold(&mut self, tag: u32, bytes: &[u8]) -> usize {
        let room = LINK_BYTES_MIN.saturating_sub(self.payload);
        let is_new = self.left == 0;
        let len = if is_new { frame_len(bytes.len()) } else { self.left };
        let accepted = if len <= room { len } else { room - room % FRAGMENT_ALIGN };
        if accepted == 0 {
            return 0;
        }
        if is_new {
            self.held.extend_from_slice(&Header { tag, len }.encode());
        }
        self.held.extend_from_slice(&bytes[self.skip..accepted]);
        self.payload += accepted;
        self.left = len - accepted;
        self.skip = 0;
        accepted
    }

    /// Writes held bytes, and behind them as much of the current frame, or of a new one, as the
    /// kernel takes.
    fn write_frame(&mut self, socket: &OwnedFd, tag: u32, bytes: &[u8]) -> Result<usize, Errno> {
        if !self.writable {
            return Ok(0);
        }
        let is_new = self.left == 0;
        let len = if is_new { frame_len(bytes.len()) } else { self.left };
        let payload = &bytes[self.skip..len];
        let header = is_new.then(|| Header { tag, len }.encode());
        let header = header.as_ref().map_or(&[][..], |header| header);
        let held = &self.held[self.gone..];
        let taken = write_parts(socket, [held, header, payload])?;
        self.writable = taken == held.len() + header.len() + payload.len();
        let Some(taken) = taken.checked_sub(held.len()) else {
            self.gone += taken;
            return Ok(0);
        };
        self.forget();
        if is_new && taken == 0 {
            return Ok(0);
        }
        self.held.extend_from_slice(header.get(taken..).unwrap_or_default());
        let reached = self.skip + taken.saturating_sub(header.len());
        let accepted = if reached == len { len } else { reached - reached % FRAGMENT_ALIGN };
        self.left = len - accepted;
        self.skip = reached - accepted;
        Ok(accepted)
    }
}

/// The payload bytes of the next frame of `bytes` remaining bytes. All frames of a longer message
/// but the last get about the same length, at most `FRAME_BYTES`, so that each fits one packet of
/// the kernel.
const fn frame_len(bytes: usize) -> usize {
    match bytes / FRAME_BYTES {
        0 | 1 => bytes,
        _ => bytes.div_ceil(bytes.div_ceil(FRAME_BYTES)).next_multiple_of(FRAGMENT_ALIGN),
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::limits::FRAME_BYTES_MAX;

    use super::*;

    #[test]
    fn frames_of_a_message_are_alike() {
        for bytes in [0, 1, 17, FRAME_BYTES, FRAME_BYTES_MAX - 1] {
            assert_eq!(frame_len(bytes), bytes);
        }
        assert_eq!(frame_len(FRAME_BYTES_MAX), FRAME_BYTES);
        for bytes in [10 * FRAME_BYTES + 100, 32 * 65536, 3 * FRAME_BYTES - 1] {
            let mut left = bytes;
            let mut frames = Vec::new();
            while left > 0 {
                frames.push(frame_len(left));
                left -= frames[frames.len() - 1];
            }
            let last = frames.pop().unwrap();
            let (least, most) = (*frames.iter().min().unwrap(), *frames.iter().max().unwrap());
            assert!(most <= FRAME_BYTES && last < FRAME_BYTES_MAX, "{frames:?} {last}");
            assert!(most - least < 2 * FRAGMENT_ALIGN, "{frames:?} {last}");
        }
    }
}
