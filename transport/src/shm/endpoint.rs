//! One rank's end of its host's shared memory.

use std::cell::OnceCell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringfold_types::{Lane, Rank};
use rustix::net::SocketAddrUnix;

use super::arena::{Arena, Opening};
use super::attach;
use super::error::{NAME, broken, error};
use super::ring::{Consumer, Producer};
use super::segment::Segment;
use super::signal::{Signaller, Signals};
use super::slot::{Namespace, Slot};
use crate::contract::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, LinkFault, Received, Rendezvous,
    Transport,
};
use crate::sys::{Mapping, NamedBell, copy};

/// Every so many polls the ends of peers are looked for, which is a system call.
const POLLS_PER_LOOK: u32 = 1024;
/// The epoll datum of the own bell; peers have their slot's number.
pub(super) const OWN_BELL: u64 = u64::MAX;
/// The slot of a rank without one, and the place of a link without one.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Which messages stay where they are until their receivers copy them from there, where the system
/// lets them read this process's memory (cross-memory attach). None does that is no longer than
/// `limits::LINK_BYTES_MIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offers {
    /// None, and none are taken so from peers.
    Never,
    /// Those that `Rendezvous::offer` is called for.
    #[default]
    Asked,
    /// All of so many bytes and more.
    From(usize),
}

/// One rank's end of its host's shared memory.
#[derive(Debug)]
pub struct Shm {
    pub(super) lanes: usize,
    /// Which messages are offered,
    pub(super) offers: Offers,
    /// and whether the memory of all peers can be read, once that was tried.
    pub(super) reads_all: OnceCell<bool>,
    pub(super) namespace: Namespace,
    pub(super) segment: Arc<Segment>,
    /// By rank, its slot.
    pub(super) slots: Vec<u32>,
    /// By rank and lane, the link's place among the ends, if it is used.
    pub(super) places: Vec<u32>,
    pub(super) ends: Vec<End>,
    /// By slot, all ranks of the host. The entry of this rank itself means nothing.
    pub(super) peers: Vec<Peer>,
    /// This rank's number among them, and its slot.
    pub(super) own: usize,
    pub(super) slot: Slot,
    /// How many introductions, and departures, have been noticed.
    pub(super) introductions: u32,
    pub(super) departures: u32,
    /// Whether some peer's end cannot be watched for want of descriptors.
    pub(super) is_blind: bool,
    /// Links with accepted bytes that wait for cells.
    pub(super) unflushed: usize,
    pub(super) polls: u32,
    /// Windows that were begun, where the next can lie, and the one that is not finished.
    pub(super) windows: u64,
    pub(super) arena: Arena,
    pub(super) opening: Option<Opening>,
    pub(super) signaller: Signaller,
    pub(super) bell: NamedBell,
    /// Readable when the bell rings or a peer ends.
    pub(super) wake: OwnedFd,
}

/// Our halves of a link's two rings.
#[derive(Debug)]
pub(super) struct End {
    /// The slot of the peer.
    pub(super) peer: usize,
    pub(super) producer: Producer<Arc<Mapping>>,
    pub(super) consumer: Consumer<Arc<Mapping>>,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) slot: Slot,
    pub(super) signals: Signals,
    /// Where its bell rings.
    pub(super) bell: SocketAddrUnix,
    /// Whether it has left, or its process ended.
    pub(super) has_ended: bool,
    /// Readable when its process ends.
    pub(super) watched: Option<OwnedFd>,
}

impl Shm {
    /// Whether `peer` is reached by this transport.
    #[must_use]
    pub fn reaches(&self, peer: Rank) -> bool {
        self.slot_of(peer).is_some()
    }

    /// The link's place among the ends.
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

    /// Wakes the peers that wish it, after something was published to all.
    #[inline]
    pub(super) fn notify_all(&self) {
        // As in `Peer::notify`, once for all.
        fence(Ordering::SeqCst);
        for peer in &self.peers {
            peer.wake_if_asked(&self.bell);
        }
    }

    /// Announces what waits for cells, as far as there is room, and wakes whom it could not wake
    /// before. Returns whether anything moved.
    ///
    /// # Errors
    /// Bytes that a link accepted are lost: there is no memory for them, or the peer broke the
    /// protocol.
    #[cold]
    fn flush(&mut self) -> Result<bool, LinkError> {
        if self.bell.take_owed() {
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
                // Nobody will read it; the next use of the link says why.
                _ if peer.has_ended => producer.abandon(),
                Ok(flushed) => {
                    if flushed {
                        peer.notify(&self.bell);
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
    /// Wakes the peer if it wishes, after something was published to it.
    #[inline]
    pub(super) fn notify(&self, bell: &NamedBell) {
        // Pairs with the fence in `arm`: either we see the wish, or the peer sees what we published
        // when it tries once more.
        fence(Ordering::SeqCst);
        self.wake_if_asked(bell);
    }

    #[inline]
    pub(super) fn wake_if_asked(&self, bell: &NamedBell) {
        if self.slot.wake().load(Ordering::Relaxed) != 0 {
            self.wake(bell);
        }
    }

    #[cold]
    fn wake(&self, bell: &NamedBell) {
        // One of the peers rings, and no other, unless this one cannot.
        if self.slot.wake().swap(0, Ordering::Relaxed) != 0 && !bell.ring(&self.bell) {
            self.slot.wake().store(1, Ordering::Relaxed);
        }
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
                peer.notify(&self.bell);
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
        // Not before: the peer may still look at the cell before.
        producer.expect();
        // A peer that sleeps can sleep on while we look for what it sent before; and what the fence
        // waits for has long happened by now.
        peer.notify(&self.bell);
        if taken { Exchanged::Both } else { Exchanged::Sent }
    }

    #[inline]
    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        let Some(at) = self.place(link) else { return self.unused(link) };
        let End { peer, consumer, .. } = &self.ends[at];
        match consumer.front() {
            Ok(Some((tag, bytes))) => Ok(Some(Fragment { tag, bytes })),
            Ok(None) if consumer.offered().is_some() => self.read_ahead(link, at),
            // The peer's end was noticed before we looked at the ring, so all it sent was there.
            Ok(None) if self.peers[*peer].has_ended => Err(error(link, LinkFault::Closed)),
            Ok(None) => Ok(None),
            Err(why) => Err(broken(link, why)),
        }
    }

    #[inline]
    fn consume(&mut self, link: Link, bytes: usize) {
        let Some(at) = self.place(link) else {
            assert!(bytes == 0, "consumed {bytes} bytes of a link that is none");
            return;
        };
        let End { peer, consumer, .. } = &mut self.ends[at];
        if consumer.consume(bytes) {
            self.peers[*peer].notify(&self.bell);
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
        if let (Ok(None), Some(offered)) = (consumer.front(), consumer.offered()) {
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
        let flushed = (self.unflushed > 0 || self.bell.owes()) && self.flush()?;
        let met = self.is_introduced() && self.meet()?;
        self.polls = self.polls.wrapping_add(1);
        let rang = self.polls.is_multiple_of(POLLS_PER_LOOK) && self.look();
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
        self.slot.wake().store(1, Ordering::Relaxed);
        // Whatever a peer published without seeing the wish is seen by reads after this.
        fence(Ordering::SeqCst);
        // So is its leave, of which links do not tell.
        self.notice_departures();
    }

    fn disarm(&mut self) {
        self.slot.wake().store(0, Ordering::Relaxed);
        self.look();
    }

    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        Some(self)
    }
}

impl Rendezvous for Shm {
    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_long(link, tag, bytes, true)
    }

    fn takes_offers(&self) -> bool {
        self.offers != Offers::Never && *self.reads_all.get_or_init(|| self.can_read_all())
    }

    fn is_fast(&self) -> bool {
        attach::copies_fast()
    }

    fn is_offering(&self) -> bool {
        self.ends.iter().any(|end| end.producer.is_offering())
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        if self.segment.is_ours() {
            self.withdraw();
            self.depart();
        }
    }
}
