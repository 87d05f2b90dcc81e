//! One rank's endpoint of its host's shared memory.

use std::cell::OnceCell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringfold_types::{Lane, Rank, Way};

use super::arena::{Arena, Opening};
use super::cma;
use super::error::{NAME, broken, error};
use super::ring::{Consumer, Producer};
use super::segment::Segment;
use super::signal::{Signaller, Signals};
use super::slot::{Namespace, Slot};
use crate::contract::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, Received, Rendezvous, Transport,
};
use crate::sys::{Mapping, NamedWaker, WakerAddress, copy, sent};

/// Polls between two checks for the end of peers. A check is a system call.
const POLLS_PER_CHECK: u32 = 1024;
/// Bytes of short messages after which a rank counts them that never polls.
const SHORT_BYTES_MAX: usize = 64 * 1024;
/// The epoll datum of this rank's own waker; a peer's datum is its slot number.
pub(super) const OWN_WAKER: u64 = u64::MAX;
/// The slot of a rank that has none, and the index of a link that has none.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Which messages go by rendezvous: their receivers copy them from the sender's memory (CMA), if
/// the system permits that. Messages of at most `limits::LINK_BYTES_MIN` bytes never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SingleCopy {
    /// No messages, in either direction.
    Never,
    /// Messages that are sent by `Rendezvous::offer`.
    #[default]
    Asked,
    /// Messages of at least this many bytes, and those that are sent by `Rendezvous::offer`.
    From(usize),
}

/// One rank's endpoint of its host's shared memory.
#[derive(Debug)]
pub struct Shm {
    pub(super) lanes: usize,
    /// Which messages go by rendezvous.
    pub(super) offers: SingleCopy,
    /// Whether this rank can read the memory of all peers; empty until that was tried.
    pub(super) reads_all: OnceCell<bool>,
    pub(super) namespace: Namespace,
    pub(super) segment: Arc<Segment>,
    /// By rank: its slot.
    pub(super) slots: Vec<u32>,
    /// By rank and lane: the index of the link in `ends`, if it is in use.
    pub(super) places: Vec<u32>,
    pub(super) ends: Vec<End>,
    /// By slot: all ranks of the host. The entry of this rank itself has no meaning.
    pub(super) peers: Vec<Peer>,
    /// The number of this rank's slot.
    pub(super) own: usize,
    /// This rank's slot.
    pub(super) slot: Slot,
    /// Introductions of peers that this rank has handled.
    pub(super) introductions: u32,
    /// Departures of peers that this rank has handled.
    pub(super) departures: u32,
    /// Whether the end of some peer cannot be watched for lack of descriptors.
    pub(super) cannot_watch: bool,
    /// Links with accepted bytes that wait for cells.
    pub(super) unflushed: usize,
    /// Bytes of short messages that are not counted yet.
    pub(super) short_bytes: usize,
    pub(super) polls: u32,
    /// Windows begun so far.
    pub(super) windows: u64,
    /// The part of the segment that is free for windows.
    pub(super) arena: Arena,
    /// The window in progress.
    pub(super) opening: Option<Opening>,
    pub(super) signaller: Signaller,
    pub(super) waker: NamedWaker,
    /// Readable when a peer wakes this rank or a peer's process ends.
    pub(super) wake: OwnedFd,
}

/// This rank's halves of a link's two rings.
#[derive(Debug)]
pub(super) struct End {
    /// The peer's slot.
    pub(super) peer: usize,
    pub(super) producer: Producer<Arc<Mapping>>,
    pub(super) consumer: Consumer<Arc<Mapping>>,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) slot: Slot,
    pub(super) signals: Signals,
    /// The address of the peer's waker.
    pub(super) waker: WakerAddress,
    /// Whether the peer has left, or its process has ended.
    pub(super) has_ended: bool,
    /// Whether its process has ended, and it had not left.
    pub(super) has_died: bool,
    /// Readable when the peer's process ends.
    pub(super) watched: Option<OwnedFd>,
}

impl Shm {
    /// Whether `peer` is reached by this transport.
    #[must_use]
    pub fn reaches(&self, peer: Rank) -> bool {
        self.slot_of(peer).is_some()
    }

    /// The index of the link in `ends`.
    #[inline]
    pub(super) fn place(&self, link: Link) -> Option<usize> {
        let lane = link.lane.index();
        let place = *self.places.get(link.peer.index() * self.lanes + lane)?;
        (place != NOWHERE && lane < self.lanes).then_some(place as usize)
    }

    /// The slot of a peer.
    #[inline]
    pub(super) fn slot_of(&self, peer: Rank) -> Option<usize> {
        let slot = *self.slots.get(peer.index())?;
        (slot != NOWHERE && slot as usize != self.own).then_some(slot as usize)
    }

    /// Wakes the parked peers, after this rank has published something to all.
    #[inline]
    pub(super) fn notify_all(&self) {
        // The fence of `Peer::notify`, once for all peers.
        fence(Ordering::SeqCst);
        for peer in &self.peers {
            peer.wake_if_asked(&self.waker);
        }
    }

    /// Announces held bytes as far as there are cells, and retries wake-ups that failed. Returns
    /// whether anything moved.
    ///
    /// # Errors
    /// Bytes that a link had accepted are lost: there is no memory for them, or the peer broke the
    /// protocol.
    #[cold]
    fn flush(&mut self) -> Result<bool, LinkError> {
        if self.waker.take_owed() {
            self.notify_all();
        }
        let mut moved = false;
        let mut unflushed = 0;
        for end in &mut self.ends {
            let producer = &mut end.producer;
            if producer.is_flushed() {
                continue;
            }
            let peer = &self.peers[end.peer];
            match producer.flush() {
                // The peer will not read it; the next use of the link returns the error.
                _ if peer.has_ended => producer.abandon(),
                Ok(flushed) => {
                    if flushed {
                        peer.notify(&self.waker);
                        moved = true;
                    }
                    unflushed += usize::from(!producer.is_flushed());
                }
                Err(why) => {
                    producer.abandon();
                    return Err(broken(Link { peer: peer.rank, lane: Lane(0) }, why));
                }
            }
        }
        self.unflushed = unflushed;
        Ok(moved)
    }
}

impl Peer {
    /// Wakes the peer if it is parked, after this rank has published something to it.
    #[inline]
    pub(super) fn notify(&self, waker: &NamedWaker) {
        // Pairs with the fence in `arm`: either this rank sees the peer's wake word, or the peer
        // sees the published data in its last try before it parks.
        fence(Ordering::SeqCst);
        self.wake_if_asked(waker);
    }

    #[inline]
    pub(super) fn wake_if_asked(&self, waker: &NamedWaker) {
        if self.slot.wake().load(Ordering::Relaxed) != 0 {
            self.wake(waker);
        }
    }

    #[cold]
    fn wake(&self, waker: &NamedWaker) {
        // Only one rank wakes the peer, unless its attempt fails.
        if self.slot.wake().swap(0, Ordering::Relaxed) != 0 && !waker.wake(&self.waker) {
            self.slot.wake().store(1, Ordering::Relaxed);
        }
    }
}

impl Shm {
    /// Counts the bytes of short messages since the last time.
    fn count_short(&mut self) {
        sent(Way::Shm, std::mem::take(&mut self.short_bytes));
    }
}

impl Transport for Shm {
    fn name(&self) -> &'static str {
        NAME
    }

    #[inline]
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        if let Some(at) = self.place(link) {
            let End { peer, producer, .. } = &mut self.ends[at];
            let peer = &self.peers[*peer];
            if !peer.has_ended && producer.push_short(tag, bytes) {
                producer.expect();
                peer.notify(&self.waker);
                self.short_bytes += bytes.len();
                if self.short_bytes >= SHORT_BYTES_MAX {
                    self.count_short();
                }
                return Ok(bytes.len());
            }
        }
        self.send_long(link, tag, bytes, false)
    }

    #[inline]
    fn exchange(
        &mut self,
        link: Link,
        tag: u32,
        own: &[u8],
        theirs: &mut [u8; EXCHANGE_BYTES],
        tries: u32,
    ) -> Exchanged {
        let Some(at) = self.place(link) else { return Exchanged::Nothing };
        let End { peer, producer, consumer } = &mut self.ends[at];
        let peer = &self.peers[*peer];
        if peer.has_ended || !producer.push_short(tag, own) {
            return Exchanged::Nothing;
        }
        let taken = consumer.take_short(tag, &mut theirs[..own.len()], tries);
        // Only now: the peer may still be reading the previous cell.
        producer.expect();
        // A parked peer may stay parked while this rank polls for an earlier message. By now the
        // stores that the fence waits for are complete.
        peer.notify(&self.waker);
        if taken { Exchanged::Both } else { Exchanged::Sent }
    }

    #[inline]
    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        let Some(at) = self.place(link) else { return self.unused(link) };
        let End { peer, consumer, .. } = &self.ends[at];
        match consumer.front() {
            Ok(Some((tag, bytes))) => Ok(Some(Fragment { tag, bytes })),
            Ok(None) if consumer.rendezvous_tag().is_some() => self.read_ahead(link, at),
            // The peer's end was noticed before this read of the ring, so the ring held everything
            // that the peer sent.
            Ok(None) if self.peers[*peer].has_ended => Err(error(link, self.peers[*peer].fault())),
            Ok(None) => Ok(None),
            Err(why) => Err(broken(link, why)),
        }
    }

    #[inline]
    fn consume(&mut self, link: Link, bytes: usize) {
        let Some(at) = self.place(link) else {
            assert!(bytes == 0, "consumed {bytes} bytes of an unused link");
            return;
        };
        let End { peer, consumer, .. } = &mut self.ends[at];
        if consumer.consume(bytes) {
            self.peers[*peer].notify(&self.waker);
        }
    }

    #[inline]
    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        let Some(at) = self.place(link) else { return self.unused(link).map(|_| None) };
        let consumer = &self.ends[at].consumer;
        if let (Ok(None), Some(offered)) = (consumer.front(), consumer.rendezvous_tag()) {
            if offered != tag {
                return Ok(Some(Received { tag: offered, bytes: 0 }));
            }
            let bytes = self.read(link, at, dst)?;
            return Ok((bytes > 0).then_some(Received { tag, bytes }));
        }
        let Some(fragment) = self.readable(link)? else { return Ok(None) };
        if fragment.tag != tag {
            return Ok(Some(Received { tag: fragment.tag, bytes: 0 }));
        }
        let bytes = fragment.bytes.len().min(dst.len());
        copy(&mut dst[..bytes], &fragment.bytes[..bytes]);
        self.consume(link, bytes);
        Ok(Some(Received { tag, bytes }))
    }

    fn withdraw(&mut self) {
        self.ends.iter_mut().for_each(|end| end.producer.withdraw());
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, LinkError> {
        let flushed = (self.unflushed > 0 || self.waker.owes()) && self.flush()?;
        let met = self.is_introduced() && self.map_introduced()?;
        if self.short_bytes > 0 {
            self.count_short();
        }
        self.polls = self.polls.wrapping_add(1);
        let rang = self.polls.is_multiple_of(POLLS_PER_CHECK) && self.handle_events();
        Ok(flushed || met || rang)
    }

    #[inline]
    fn is_flushed(&self) -> bool {
        self.unflushed == 0
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn arm(&mut self) {
        self.watch_next();
        self.slot.wake().store(1, Ordering::Relaxed);
        // Reads after this fence see everything that a peer published before it could see the wake
        // word.
        fence(Ordering::SeqCst);
        // Links do not report that a peer has left, so check for that here.
        self.notice_departures();
    }

    fn disarm(&mut self) {
        self.slot.wake().store(0, Ordering::Relaxed);
        self.handle_events();
    }

    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        Some(self)
    }
}

impl Rendezvous for Shm {
    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_long(link, tag, bytes, true)
    }

    fn can_single_copy(&mut self) -> bool {
        self.offers != SingleCopy::Never && *self.reads_all.get_or_init(|| self.can_read_all())
    }

    fn is_fast(&mut self) -> bool {
        cma::copies_fast()
    }

    fn is_offering(&mut self) -> bool {
        self.ends.iter().any(|end| end.producer.has_rendezvous())
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        if self.segment.is_ours() {
            self.count_short();
            self.withdraw();
            self.depart();
        }
    }
}
