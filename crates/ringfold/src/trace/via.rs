//! Transports whose traffic is traced.
//!
//! A wrapper sees all that a transport moves, so transports without a trace cost nothing more. Both
//! ends of a link see the same bytes in the same order. So the sender and the receiver count alike,
//! and derive the same number for an arrow. A point-to-point message is an arrow of its own. Of the
//! bytes with the tag of a collective the first ones are.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

use ringfold_transport::{
    Fragment, Link, LinkError, Received, RegisteredMemory, Rendezvous, SharedMemory, Transport,
    Window, ticks,
};
use ringfold_types::limits::MESSAGE_LANE;
use ringfold_types::{Digest, Rank, mix};

use super::event::{Arrow, Event, GroupId, Passed, What};
use super::process::record;
use crate::messages::{HEADER_BYTES, tag_and_bytes};

/// The traffic of a rank of a group.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// The number of the group in the record.
    pub(crate) group: GroupId,
    /// The name of the group.
    pub(crate) name: String,
    /// A number of the group that all members have.
    pub(crate) number: u64,
    /// This rank.
    pub(crate) own: Rank,
}

/// A transport whose traffic is traced.
#[derive(Debug)]
pub(crate) struct Traced<T: ?Sized> {
    traffic: Traffic,
    streams: HashMap<(Link, bool), Stream>,
    inner: Box<T>,
}

/// One direction of a link.
#[derive(Debug, Default)]
struct Stream {
    /// The arrows so far.
    arrows: u64,
    /// The latest tag.
    tag: Option<u32>,
    /// The message that has begun.
    message: Option<Message>,
}

/// A message that has begun.
#[derive(Clone, Copy, Debug)]
struct Message {
    since: u64,
    tag: u32,
    bytes: u64,
    /// The bytes that have not passed, with the header.
    left: u64,
}

impl Traffic {
    /// The number of an arrow of this link.
    fn arrow(&self, (link, is_sent): (Link, bool), count: u64) -> Arrow {
        let [from, to] = if is_sent { [self.own, link.peer] } else { [link.peer, self.own] };
        let numbers = [self.number, from.0.into(), to.0.into(), link.lane.0.into()];
        let stream = numbers.into_iter().fold(Digest::default(), |it, next| it.number(next.into()));
        Arrow { id: mix(stream.finish().wrapping_add(count)), is_sent }
    }

    fn record(&self, since: u64, until: u64, what: What) {
        let group = self.group;
        record(Event { group, since, until, what }, || self.name.clone());
    }
}

impl<T: Transport + ?Sized> Traced<T> {
    pub(crate) fn new(inner: Box<T>, traffic: Traffic) -> Self {
        Self { traffic, streams: HashMap::new(), inner }
    }

    /// Notes that bytes with this tag begin to pass now. `front` has the first ones.
    fn begin(&mut self, at: (Link, bool), tag: u32, front: &[u8]) {
        let stream = self.streams.entry(at).or_default();
        if at.0.lane.0 == MESSAGE_LANE {
            if stream.message.is_none()
                && let Some((tag, bytes)) = tag_and_bytes(front)
            {
                let left = bytes.saturating_add(HEADER_BYTES as u64);
                stream.message = Some(Message { since: ticks(), tag, bytes, left });
            }
        } else if stream.tag.replace(tag) != Some(tag) {
            let arrow = self.traffic.arrow(at, stream.arrows);
            stream.arrows += 1;
            let now = ticks();
            self.traffic.record(now, now, What::Bytes(arrow));
        }
    }

    /// Notes that so many bytes have passed.
    fn pass(&mut self, at: (Link, bool), passed: usize) {
        let Some(stream) = self.streams.get_mut(&at) else { return };
        let Some(message) = &mut stream.message else { return };
        message.left = message.left.saturating_sub(passed as u64);
        if message.left == 0 {
            let Message { since, tag, bytes, .. } = *message;
            let arrow = self.traffic.arrow(at, stream.arrows);
            (stream.message, stream.arrows) = (None, stream.arrows + 1);
            let message = Passed { peer: at.0.peer.0, tag, bytes, arrow };
            self.traffic.record(since, ticks(), What::Message(message));
        }
    }

    /// Sends by this method of the transport.
    fn send_by(
        &mut self,
        (link, tag): (Link, u32),
        bytes: &[u8],
        send: impl FnOnce(&mut T) -> Result<usize, LinkError>,
    ) -> Result<usize, LinkError> {
        // The receiver may take the bytes before a `send` says so.
        self.begin((link, true), tag, bytes);
        let accepted = send(&mut self.inner)?;
        self.pass((link, true), accepted);
        Ok(accepted)
    }
}

impl<T: Transport + ?Sized> Transport for Traced<T> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by((link, tag), bytes, |inner| inner.send(link, tag, bytes))
    }

    fn send_ahead(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_by((link, tag), bytes, |inner| inner.send_ahead(link, tag, bytes))
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        self.inner.readable(link)
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        // The same bytes as the caller has seen.
        if let Ok(Some(Fragment { tag, bytes: all })) = self.inner.readable(link) {
            let mut front = [0; HEADER_BYTES];
            let len = all.len().min(HEADER_BYTES);
            front[..len].copy_from_slice(&all[..len]);
            self.begin((link, false), tag, &front[..len]);
        }
        self.inner.consume(link, bytes);
        self.pass((link, false), bytes);
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        let received = self.inner.recv(link, tag, dst)?;
        if let Some(Received { tag, bytes: bytes @ 1.. }) = received {
            self.begin((link, false), tag, &dst[..bytes]);
            self.pass((link, false), bytes);
        }
        Ok(received)
    }

    fn expect(&mut self, link: Link, tag: u32, skip: usize, dst: &mut [u8]) -> bool {
        self.inner.expect(link, tag, skip, dst)
    }

    fn withdraw(&mut self) {
        self.inner.withdraw();
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        self.inner.poll()
    }

    fn is_flushed(&self) -> bool {
        self.inner.is_flushed()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake_fd()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        if self.inner.rendezvous().is_some() { Some(self) } else { None }
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        self.inner.registered_memory()
    }
}

impl<T: Transport + ?Sized> Rendezvous for Traced<T> {
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

impl<T: SharedMemory + ?Sized> SharedMemory for Traced<T> {
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
