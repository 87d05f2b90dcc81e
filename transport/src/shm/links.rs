//! The beginning and the end of links. The first sender maps the link and introduces itself to the
//! peer, and the peer maps the link in a later `poll`. A link ends when the peer leaves or its
//! process ends.

use std::cell::OnceCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringfold_types::Lane;
use ringfold_types::limits::LANES_MAX;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::address::Address;
use super::arena::Arena;
use super::cma::{PeerMemory, watch};
use super::endpoint::{End, NOWHERE, OWN_WAKER, Peer, Shm, SingleCopy};
use super::error::{error, no_memory, unknown};
use super::handshake::Host;
use super::segment::Segment;
use super::signal::{Signaller, Signals};
use super::slot::{DIED, LEFT, Namespace};
use crate::contract::{Fragment, Link, LinkError, LinkFault};
use crate::sys::NamedWaker;

impl Shm {
    /// Makes the endpoint of a rank that has the host's memory. `addresses` are those of the host's
    /// ranks.
    pub(super) fn new(
        host: Host,
        offers: SingleCopy,
        segment: Segment,
        addresses: &[Address],
        waker: NamedWaker,
    ) -> io::Result<Self> {
        let Host { key, rank, ranks, layout } = host;
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&wake, &waker, epoll::EventData::new_u64(OWN_WAKER), epoll::EventFlags::IN)?;
        let lanes = layout.lanes;
        let most = ranks.last().map_or(0, |last| last.index() + 1);
        let mut slots = vec![NOWHERE; most];
        let mut peers = Vec::with_capacity(ranks.len());
        for (number, (rank, address)) in (0..).zip(ranks.iter().zip(addresses)) {
            slots[rank.index()] = number;
            peers.push(Peer {
                rank: *rank,
                slot: segment.slot(number as usize),
                signals: Signals::new(),
                waker: address.waker(&key, *rank)?,
                has_ended: false,
                has_died: false,
                watched: None,
            });
        }
        let own = slots[rank.index()] as usize;
        let (slot, namespace) = (segment.slot(own), Namespace::own());
        slot.sign(namespace)?;
        Ok(Self {
            lanes,
            offers,
            reads_all: OnceCell::new(),
            namespace,
            slots,
            places: vec![NOWHERE; most * lanes],
            ends: Vec::new(),
            peers,
            own,
            introductions: 0,
            departures: 0,
            cannot_watch: false,
            unflushed: 0,
            short_bytes: 0,
            polls: 0,
            windows: 0,
            arena: Arena::of(&segment),
            opening: None,
            signaller: Signaller::new(slot.clone()),
            slot,
            segment: Arc::new(segment),
            waker,
            wake,
        })
    }

    /// The result of a read from a link that is not in use: nothing, or an error.
    #[cold]
    pub(super) fn unused(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        match self.slot_of(link.peer).filter(|_| link.lane.index() < self.lanes) {
            None => Err(unknown(link)),
            Some(slot) if self.peers[slot].has_ended => Err(error(link, self.peers[slot].fault())),
            Some(_) => Ok(None),
        }
    }

    /// Maps a link that is not in use, and introduces this rank to the peer. Returns the link's
    /// index.
    #[cold]
    pub(super) fn open_link(&mut self, link: Link) -> Result<usize, LinkError> {
        // The peer may have ended by now.
        self.unused(link)?;
        let Some(slot) = self.slot_of(link.peer) else { return Err(unknown(link)) };
        let at = self.map_link(slot, link.lane).map_err(|why| no_memory(link, why))?;
        self.introduce(slot, link.lane);
        Ok(at)
    }

    /// Tells a peer that this rank uses a link. The caller must notify the peer.
    fn introduce(&self, slot: usize, lane: Lane) {
        let peer = &self.peers[slot].slot;
        // Release: for the link's first pages, and for this rank's signed slot.
        peer.introduced(self.own).fetch_or(1 << lane.index(), Ordering::Release);
        peer.introductions().fetch_add(1, Ordering::Release);
    }

    /// Maps a link and returns its index.
    fn map_link(&mut self, slot: usize, lane: Lane) -> io::Result<usize> {
        let (producer, consumer) = self.segment.link(self.own, slot, lane.index())?;
        let at = self.ends.len();
        let peer = self.peers[slot].rank.index();
        self.places[peer * self.lanes + lane.index()] = u32::try_from(at).unwrap_or(NOWHERE);
        self.ends.push(End { peer: slot, producer, consumer });
        self.watch_peer(slot);
        Ok(at)
    }

    /// Whether some peer has introduced itself since the last `map_introduced`.
    #[inline]
    pub(super) fn is_introduced(&self) -> bool {
        self.slot.introductions().load(Ordering::Relaxed) != self.introductions
    }

    /// Maps the links that peers have begun to use. Returns whether there may have been any.
    #[cold]
    pub(super) fn map_introduced(&mut self) -> Result<bool, LinkError> {
        // Acquire: this rank sees all introductions that are counted.
        let introductions = self.slot.introductions().load(Ordering::Acquire);
        for slot in 0..self.peers.len() {
            let word = self.slot.introduced(slot);
            if slot == self.own || word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let lanes = word.swap(0, Ordering::Acquire);
            for lane in (0..LANES_MAX.min(self.lanes)).filter(|lane| lanes >> lane & 1 == 1) {
                let rest = lanes & (u16::MAX << lane);
                #[expect(clippy::cast_possible_truncation, reason = "LANES_MAX fits")]
                let link = Link { peer: self.peers[slot].rank, lane: Lane(lane as u8) };
                if self.place(link).is_some() {
                    self.watch_peer(slot);
                    continue;
                }
                if let Err(why) = self.map_link(slot, link.lane) {
                    // The next call finds the remaining lanes again, and reports the error again.
                    self.slot.introduced(slot).fetch_or(rest, Ordering::Relaxed);
                    return Err(no_memory(link, why));
                }
                if self.offers != SingleCopy::Never {
                    // The peer may not have known this process when it introduced itself.
                    self.introduce(slot, link.lane);
                    self.peers[slot].notify(&self.waker);
                }
            }
        }
        self.introductions = introductions;
        Ok(true)
    }

    /// Watches for the end of the process of the next rank, before this rank parks. So each rank
    /// has a peer that sees its end and tells the others, also those that have no link to it in
    /// use.
    pub(super) fn watch_next(&mut self) {
        let next = (self.own + 1) % self.peers.len();
        if next != self.own && !self.cannot_watch {
            self.watch_process(next);
        }
    }

    /// Watches for the end of a peer's process, unless it is watched or the system refuses.
    fn watch_process(&mut self, slot: usize) {
        let peer = &mut self.peers[slot];
        if peer.watched.is_none() && !peer.has_ended {
            match watch(&peer.slot, self.namespace) {
                Some(Ok(process)) => {
                    let datum = epoll::EventData::new_u64(slot as u64);
                    let added = epoll::add(&self.wake, &process, datum, epoll::EventFlags::IN);
                    peer.watched = added.is_ok().then_some(process);
                }
                Some(Err(why)) if why.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                    let is_news = peer.end_of_process(&self.wake);
                    if is_news {
                        self.announce_departure();
                    }
                }
                Some(Err(why)) if !self.cannot_watch => {
                    self.cannot_watch = true;
                    tracing::warn!(
                        "only the control plane reports the end of some ranks of this host, since \
                         their processes cannot be watched: {why}; if descriptors are short, raise \
                         `ulimit -n`"
                    );
                }
                _ => {}
            }
        }
    }

    /// Watches for the end of a peer's process, and permits rendezvous sends of the peer, unless
    /// either was done before or the system refuses.
    fn watch_peer(&mut self, slot: usize) {
        self.watch_process(slot);
        if self.offers == SingleCopy::Never {
            return;
        }
        let peer = &self.peers[slot];
        if let Some(Ok(process)) = PeerMemory::find(&peer.slot, self.namespace) {
            let ends = self.ends.iter_mut().filter(|end| end.peer == slot);
            ends.for_each(|end| end.consumer.permit_rendezvous(process));
        }
    }

    /// Whether this process can read the memory of all peers.
    #[cold]
    pub(super) fn can_read_all(&self) -> bool {
        let others = self.peers.iter().enumerate().filter(|(slot, _)| *slot != self.own);
        let hidden = others.map(|(_, peer)| peer).find_map(|peer| {
            let missing = || Err(io::Error::other("it has not joined yet"));
            let found = PeerMemory::find(&peer.slot, self.namespace).unwrap_or_else(missing);
            found.err().map(|why| (peer.rank, why))
        });
        if let Some((peer, why)) = &hidden {
            tracing::info!(
                "long messages are copied twice, since the memory of rank {peer} cannot be read: \
                 {why}; kernel.yama.ptrace_scope=0 or the capability SYS_PTRACE permits it"
            );
        }
        hidden.is_none()
    }

    /// Handles events: notices the end of peers and clears the waker. Returns whether there were
    /// any.
    pub(super) fn handle_events(&mut self) -> bool {
        let (mut rang, mut died) = (false, false);
        let mut ended = self.notice_departures();
        loop {
            let mut events = [const { MaybeUninit::uninit() }; 32];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let Ok((events, _)) = epoll::wait(&self.wake, &mut events[..], Some(&now)) else {
                break;
            };
            if events.is_empty() {
                break;
            }
            rang = true;
            let mut is_waker = false;
            for event in events {
                match usize::try_from(event.data.u64()).ok().and_then(|at| self.peers.get_mut(at)) {
                    Some(peer) => {
                        ended = true;
                        died |= peer.end_of_process(&self.wake);
                    }
                    None => is_waker = true,
                }
            }
            if is_waker {
                self.waker.clear();
                // The next call sees any other events.
                break;
            }
        }
        if died {
            self.announce_departure();
        }
        if ended && self.is_introduced() {
            // A peer's messages precede its end. If a link cannot be mapped, `poll` reports that.
            self.map_introduced().ok();
        }
        rang || ended
    }

    /// Notices peers that have left or died. Returns whether there may be any.
    pub(super) fn notice_departures(&mut self) -> bool {
        // Acquire: this rank sees everything that a peer did before it left.
        let departures = self.segment.departures().load(Ordering::Acquire);
        if departures == self.departures {
            return false;
        }
        self.departures = departures;
        for peer in &mut self.peers {
            if !peer.has_ended && peer.slot.left().load(Ordering::Acquire) != 0 {
                peer.end(&self.wake);
            }
        }
        true
    }

    /// Tells all peers that this rank leaves.
    pub(super) fn depart(&self) {
        self.slot.left().store(LEFT, Ordering::Release);
        self.announce_departure();
    }

    /// Tells all peers that some rank has left or died.
    fn announce_departure(&self) {
        self.segment.departures().fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        let others = self.peers.iter().enumerate().filter(|(slot, _)| *slot != self.own);
        others.for_each(|(_, peer)| peer.wake_if_asked(&self.waker));
    }
}

impl Peer {
    /// The fault of a link to the peer, which has ended.
    pub(super) const fn fault(&self) -> LinkFault {
        if self.has_died { LinkFault::Died } else { LinkFault::Closed }
    }

    /// Marks the peer as ended, since its process is. Returns whether no peer knows yet that it has
    /// died.
    fn end_of_process(&mut self, wake: &OwnedFd) -> bool {
        let left = self.slot.left();
        let is_news = left.compare_exchange(0, DIED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        self.end(wake);
        is_news
    }

    /// Marks the peer as ended.
    fn end(&mut self, wake: &OwnedFd) {
        self.has_ended = true;
        self.has_died = self.slot.left().load(Ordering::Acquire) == DIED;
        if let Some(process) = self.watched.take() {
            epoll::delete(wake, &process).ok();
        }
    }
}
