//! The receiving half of a link.

use std::cell::Cell;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::broken::Broken;
use super::socket::{Read, read, read_both};
use super::staging::Staging;
use crate::contract::{Fragment, Received};
use crate::sys::copy;

/// Bytes of the staging buffer; further bytes wait in the kernel.
pub(super) const STAGING_BYTES: usize = 256 * 1024;

/// Bytes read beyond the receiver's memory: the next header, and short messages entirely. Each of
/// them is copied once more.
const AHEAD_BYTES: usize = 2048;

/// The same where the receiver wants a message of up to `SHORT_BYTES`: to copy it costs less than
/// another system call, and one call may read several.
const SHORT_AHEAD_BYTES: usize = 32 * 1024;
const SHORT_BYTES: usize = 16 * 1024;

/// Shorter reads go through the staging buffer, together with the bytes after them.
const DIRECT_BYTES_MIN: usize = 1024;

/// The receiving half of a link.
#[derive(Debug)]
pub(super) struct Reader {
    staging: Staging,
    /// Whether the kernel may have bytes. Events are edge-triggered, so this remembers them.
    ready: bool,
    /// Whether the kernel has reported the end of the stream. A short read then does not mean that
    /// the socket is empty.
    ending: bool,
    end: Option<Broken>,
    /// Whether the receiver reads in place rather than into its own memory.
    lends: Cell<bool>,
    /// Whether the link is on the endpoint's list of links to fill.
    pub(super) listed: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            staging: Staging::new(STAGING_BYTES),
            ready: true,
            ending: false,
            end: None,
            lends: Cell::new(false),
            listed: false,
        }
    }
}

impl Reader {
    /// Prepares for bytes of an open connection.
    pub(super) fn open(&mut self) {
        self.staging.prepare();
    }

    /// Notes that the kernel may have bytes.
    pub(super) const fn notice(&mut self, ending: bool) {
        self.ready = self.end.is_none();
        self.ending |= ending;
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// See `Transport::readable`.
    pub(super) fn readable(&self) -> Result<Option<Fragment<'_>>, Broken> {
        self.lends.set(true);
        match self.staging.lent() {
            None => self.nothing().map(|()| None),
            some => Ok(some),
        }
    }

    /// See `Transport::consume`.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.staging.take(bytes);
    }

    /// Whether the receiver reads in place, so `fill` should be called.
    pub(super) const fn lends(&self) -> bool {
        self.lends.get()
    }

    /// Reads arrived bytes if there is room. Returns whether anything changed.
    pub(super) fn fill(&mut self, socket: &OwnedFd) -> bool {
        self.read_ahead(socket, STAGING_BYTES)
    }

    /// The reason why the stream has ended, even if arrived bytes are not consumed yet.
    pub(super) fn end(&self) -> Option<Broken> {
        self.staging.bad().map(|bad| Broken::Protocol(bad.reason())).or(self.end)
    }

    /// See `Transport::recv`.
    pub(super) fn recv(
        &mut self,
        socket: &OwnedFd,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, Broken> {
        self.lends.set(false);
        let ahead = if dst.len() > SHORT_BYTES { AHEAD_BYTES } else { SHORT_AHEAD_BYTES };
        if self.staging.frame().is_none() {
            self.read_ahead(socket, ahead);
        }
        let Some(frame) = self.staging.frame() else { return self.nothing().map(|()| None) };
        if frame.tag != tag {
            return Ok(Some(Received { tag: frame.tag, bytes: 0 }));
        }
        let mut moved = self.copy(dst);
        if moved < dst.len() && moved < frame.left && self.ready {
            let rest = &mut dst[moved..];
            moved += if rest.len().min(frame.left - moved) < DIRECT_BYTES_MIN {
                self.read_ahead(socket, ahead);
                self.copy(rest)
            } else {
                self.read_direct(socket, rest, ahead)
            };
        }
        match moved {
            0 => self.nothing().map(|()| None),
            bytes => Ok(Some(Received { tag, bytes })),
        }
    }

    /// The result if there is nothing to lend.
    fn nothing(&self) -> Result<(), Broken> {
        self.end().map_or(Ok(()), Err)
    }

    fn copy(&mut self, dst: &mut [u8]) -> usize {
        let Some(Fragment { bytes, .. }) = self.staging.lent() else { return 0 };
        let count = bytes.len().min(dst.len());
        copy(&mut dst[..count], &bytes[..count]);
        self.staging.take(count);
        count
    }

    fn read_ahead(&mut self, socket: &OwnedFd, limit: usize) -> bool {
        if !self.ready || !self.staging.is_roomy() {
            return false;
        }
        let free = self.staging.free();
        let limit = limit.min(free.len());
        let got = read(socket, &mut free[..limit]);
        let bytes = self.handle_read(got, limit);
        self.staging.filled(bytes);
        bytes > 0 || self.end.is_some()
    }

    /// Reads payload of the open frame straight into `dst`, after the few bytes of it in the
    /// staging buffer, for which `dst` has room. It reads up to `ahead` bytes behind the frame too.
    /// Returns how many bytes of `dst` are valid.
    fn read_direct(&mut self, socket: &OwnedFd, dst: &mut [u8], ahead: usize) -> usize {
        let Some(frame) = self.staging.frame() else { return 0 };
        let want = frame.left.min(dst.len());
        let staged = self.staging.unload(&mut dst[..want]);
        let first = &mut dst[staged..want];
        let room = first.len();
        let ahead = match want == frame.left {
            true => &mut self.staging.free()[..ahead],
            false => &mut [],
        };
        let limit = room + ahead.len();
        let got = read_both(socket, first, ahead);
        let bytes = self.handle_read(got, limit);
        let arrived = staged + bytes.min(room);
        let good = if arrived == want { want } else { frame.whole(arrived) };
        self.staging.pass(good);
        if arrived > good {
            self.staging.stash(&dst[good..arrived]);
        }
        if bytes > room {
            self.staging.filled(bytes - room);
        }
        good
    }

    /// Updates the state after a read of up to `limit` bytes, and returns the bytes read.
    fn handle_read(&mut self, got: Result<Read, Errno>, limit: usize) -> usize {
        match got {
            Ok(Read::Bytes(bytes)) => {
                self.ready = bytes == limit || self.ending;
                return bytes;
            }
            Ok(Read::NotYet) => {}
            Ok(Read::End) => self.end = Some(Broken::Closed),
            Err(errno) => self.end = Some(errno.into()),
        }
        self.ready = false;
        0
    }
}
