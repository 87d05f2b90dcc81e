//! A layer that shows the traffic of a transport.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use ringfold_types::Rank;

use crate::contract::{Fragment, Link, LinkError, Received, Rendezvous, SharedMemory, Transport};
use crate::sys::Window;

/// The receiver of the traffic that a `Watched` transport shows. Both ends of a link see the same
/// bytes in the same order. A direction is a link, and whether this rank sends there.
pub trait Watch: Send + fmt::Debug {
    /// Bytes with this tag begin to pass, or go on. `front` has the next ones. A sender may see
    /// them several times before they pass.
    fn begin(&mut self, direction: (Link, bool), tag: u32, front: &[u8]);

    /// So many bytes have passed, which `begin` has shown before.
    fn pass(&mut self, direction: (Link, bool), bytes: usize);
}

/// A transport whose traffic a `Watch` sees. Unlike the other layers it also shares memory, if the
/// transport does. Bytes in shared memory are no traffic.
#[derive(Debug)]
pub struct Watched<T: ?Sized, W> {
    watch: W,
    inner: Box<T>,
}

impl<T: Transport + ?Sized, W: Watch> Watched<T, W> {
    /// Wraps `inner`.
    #[must_use]
    pub const fn new(inner: Box<T>, watch: W) -> Self {
        Self { watch, inner }
    }

    /// Sends by this method of the transport.
    fn send_by(
        &mut self,
        (link, tag): (Link, u32),
        bytes: &[u8],
        send: impl FnOnce(&mut T) -> Result<usize, LinkError>,
    ) -> Result<usize, LinkError> {
        // The receiver may take the bytes before a `send` says so.
        self.watch.begin((link, true), tag, bytes);
        let accepted = send(&mut self.inner)?;
        self.watch.pass((link, true), accepted);
        Ok(accepted)
    }
}

impl<T: Transport + ?Sized, W: Watch> Transport for Watched<T, W> {
    pass_on!(name readable expect withdraw poll is_flushed wake_fd arm disarm registered_memory);

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by((link, tag), bytes, |inner| inner.send(link, tag, bytes))
    }

    fn send_ahead(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by((link, tag), bytes, |inner| inner.send_ahead(link, tag, bytes))
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        // The same bytes as the caller has seen.
        if let Ok(Some(Fragment { tag, bytes: front })) = self.inner.readable(link) {
            self.watch.begin((link, false), tag, front);
        }
        self.inner.consume(link, bytes);
        self.watch.pass((link, false), bytes);
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        let received = self.inner.recv(link, tag, dst)?;
        if let Some(Received { tag, bytes: bytes @ 1.. }) = received {
            self.watch.begin((link, false), tag, &dst[..bytes]);
            self.watch.pass((link, false), bytes);
        }
        Ok(received)
    }

    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        if self.inner.rendezvous().is_some() { Some(self) } else { None }
    }
}

impl<T: Transport + ?Sized, W: Watch> Rendezvous for Watched<T, W> {
    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by((link, tag), bytes, |inner| match inner.rendezvous() {
            Some(by) => by.offer(link, tag, bytes),
            None => inner.send(link, tag, bytes),
        })
    }

    fn can_single_copy(&mut self) -> bool {
        self.inner.rendezvous().is_some_and(|by| by.can_single_copy())
    }

    fn is_fast(&mut self) -> bool {
        self.inner.rendezvous().is_some_and(|by| by.is_fast())
    }

    fn is_offering(&mut self) -> bool {
        self.inner.rendezvous().is_some_and(|by| by.is_offering())
    }
}

impl<T: SharedMemory + ?Sized, W: Watch> SharedMemory for Watched<T, W> {
    fn begin_window(&mut self, bytes: usize) -> Result<(), LinkError> {
        self.inner.begin_window(bytes)
    }

    fn finish_window(&mut self) -> Result<Option<io::Result<Window>>, LinkError> {
        self.inner.finish_window()
    }

    fn signal(&mut self, tag: u32) {
        self.inner.signal(tag);
    }

    fn signalled(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        self.inner.signalled(peer)
    }

    fn take_signal(&mut self, peer: Rank) {
        self.inner.take_signal(peer);
    }
}
