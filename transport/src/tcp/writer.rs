//! The sending half of a link: frames, and the window that the contract demands.

use std::os::fd::OwnedFd;

use ringfold_types::limits::{FRAGMENT_ALIGN, FRAME_BYTES, FRAME_BYTES_MAX, LINK_BYTES_MIN};
use rustix::io::Errno;

use super::frame::{HEADER_BYTES, Header};
use super::socket::{PARTS_MAX, write, write_parts};

/// The most frames that go to the kernel at once. A stream of long writes costs the sender a third
/// less than one of single frames.
const FRAMES_MAX: usize = PARTS_MAX / 2;

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
        let accepted = if bytes.len() < FRAME_BYTES_MAX {
            self.write_frames::<1>(socket, tag, bytes)?
        } else {
            self.write_frames::<FRAMES_MAX>(socket, tag, bytes)?
        };
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

    /// Writes held bytes, and behind them as much of the current frame, or of up to `MAX` new ones,
    /// as the kernel takes.
    fn write_frames<const MAX: usize>(
        &mut self,
        socket: &OwnedFd,
        tag: u32,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        if !self.writable {
            return Ok(0);
        }
        let held = &self.held[self.gone..];
        let (mut headers, mut lens) = ([[0; HEADER_BYTES]; MAX], [0; MAX]);
        let (mut frames, mut end) = (0, 0);
        while frames < MAX && (end < bytes.len() || frames == 0) {
            let rest = bytes.len() - end;
            let len = if self.is_begun(frames) { self.left } else { frame_len(rest) };
            headers[frames] = Header { tag, len }.encode();
            (lens[frames], frames, end) = (len, frames + 1, end + len);
        }
        let mut parts = [[&[][..]; 2]; MAX];
        let mut at = 0;
        for (frame, pair) in parts[..frames].iter_mut().enumerate() {
            let header = if self.is_begun(frame) { &[] } else { &headers[frame][..] };
            *pair = [header, &bytes[at + self.skip_of(frame)..at + lens[frame]]];
            at += lens[frame];
        }
        let parts = parts[..frames].as_flattened();
        let mut taken = write_parts(socket, held, parts)?;
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        self.writable = taken == held.len() + wanted;
        let Some(rest) = taken.checked_sub(held.len()) else {
            self.gone += taken;
            return Ok(0);
        };
        self.forget();
        taken = rest;
        let mut done = 0;
        for (frame, len) in lens[..frames].iter().copied().enumerate() {
            let header = if self.is_begun(frame) { 0 } else { HEADER_BYTES };
            let payload = len - self.skip_of(frame);
            if let Some(rest) = taken.checked_sub(header + payload) {
                (taken, done) = (rest, done + len);
                continue;
            }
            if header > 0 && taken == 0 {
                (self.left, self.skip) = (0, 0);
                return Ok(done);
            }
            self.held.extend_from_slice(headers[frame][..header].get(taken..).unwrap_or_default());
            let reached = self.skip_of(frame) + taken.saturating_sub(header);
            let accepted = reached - reached % FRAGMENT_ALIGN;
            (self.left, self.skip) = (len - accepted, reached - accepted);
            return Ok(done + accepted);
        }
        (self.left, self.skip) = (0, 0);
        Ok(done)
    }

    /// Whether the header of the `frame`th of some next frames has gone.
    const fn is_begun(&self, frame: usize) -> bool {
        frame == 0 && self.left > 0
    }

    /// The bytes of the `frame`th of some next frames that have gone unaccepted.
    const fn skip_of(&self, frame: usize) -> usize {
        if frame == 0 { self.skip } else { 0 }
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
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use ringfold_harness::Random;
    use rustix::net::sockopt::set_socket_send_buffer_size;

    use super::*;

    #[test]
    fn a_kernel_that_takes_any_part_of_some_frames_gets_the_message() {
        let mut random = Random::seeded();
        let (socket, mut end) = UnixStream::pair().unwrap();
        let socket = OwnedFd::from(socket);
        let message: Vec<u8> =
            (0..FRAMES_MAX * FRAME_BYTES).map(|at| (at / 3).to_le_bytes()[0]).collect();
        let mut writer = Writer::default();
        for _ in 0..8 {
            let (mut rest, mut arrived) = (&message[..], Vec::new());
            while !rest.is_empty() || writer.is_unsent() {
                set_socket_send_buffer_size(&socket, random.between(5_000, 40_000)).unwrap();
                writer.writable = true;
                if rest.is_empty() {
                    writer.flush(&socket).unwrap();
                } else {
                    rest = &rest[writer.send(&socket, 5, rest).unwrap()..];
                }
                let mut part = vec![0; random.between(1, FRAME_BYTES)];
                let got = end.read(&mut part).unwrap();
                arrived.extend_from_slice(&part[..got]);
            }
            let of_frames = message.len() + FRAMES_MAX * HEADER_BYTES;
            let got = arrived.len();
            arrived.resize(of_frames, 0);
            end.read_exact(&mut arrived[got..]).unwrap();
            let (mut rest, mut payload) = (&arrived[..], Vec::new());
            while let Some((header, after)) = rest.split_first_chunk() {
                let Header { tag, len } = Header::decode(*header).unwrap();
                assert_eq!(tag, 5);
                payload.extend_from_slice(&after[..len]);
                rest = &after[len..];
            }
            assert!(payload == message && rest.is_empty());
        }
    }

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
