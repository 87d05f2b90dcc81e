//! Ranks are processes of one host and share memory.
//!
//! Every rank makes one segment, a file in memory without a name, that holds its inbound rings: one
//! per peer and lane (`segment`, `ring`). Ranks hand the segments to each other over a Unix socket
//! after each has proven that it knows the job's secret (`connect`, `handshake`, `proof`), and keep
//! the socket, whose closing tells them of each other's end. Sending is a copy into the peer's
//! segment; receiving is reading one's own. Neither makes a system call, unless the peer is parked.
//! Those that are offered stay where they are: who receives one copies it from the sender's memory,
//! by a system call (`attach`).
//! Where all have windows, a rank also tells all others at once how far it is (`tell`).
//! Over the same sockets they hand each other buffers that all of them have mapped (`window`).
//!
//! Who writes which line, which ordering pairs with which, and why no wake-up is lost: `README.md`
//! in this folder.

mod address;
mod attach;
mod connect;
#[doc(hidden)]
pub mod decode;
mod error;
mod handshake;
mod long;
mod opening;
mod proof;
mod ring;
mod segment;
mod tell;
#[cfg(test)]
mod tell_tests;
#[cfg(test)]
mod tests;
mod window;
#[cfg(test)]
mod window_tests;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringfold_types::{Lane, Rank};
use rustix::event::{Timespec, epoll};

pub use address::same_host;
pub use connect::{Config, Offers, Pending};
pub use error::ConnectError;
pub use window::{Exposure, OwnPart, PeerParts, ReadExposure, Window};

use self::attach::Process;
use self::error::{broken, error, unknown};
use self::handshake::{Host, Met};
use self::opening::Opening;
use self::ring::{Consumer, DATA_BYTES, INLINE_BYTES, Producer};
use self::segment::{Armed, Remote, Segment};
use self::tell::{Hearer, Teller};
use crate::contract::{
    Capabilities, EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, LinkFault, Transport,
    Windows,
};
use crate::sys::{Bell, Mapping, copy};

const NAME: &str = "shm";
/// Every so many polls the ends of peers are looked for, which is a system call.
const POLLS_PER_LOOK: u32 = 1024;
/// The epoll datum of the own bell; peers have their place.
const OWN_BELL: u64 = u64::MAX;
/// The place of a rank that is not among the peers.
const NOWHERE: u32 = u32::MAX;

/// One rank's end of its host's shared memory.
#[derive(Debug)]
pub struct Shm {
    lanes: usize,
    /// Which messages are offered,
    offers: Offers,
    /// and whether every peer's memory can be read, so that none refuses them.
    reads_all: bool,
    /// By rank, its place among the peers.
    places: Vec<u32>,
    peers: Vec<Peer>,
    /// By place and lane.
    ends: Vec<End>,
    /// Links with accepted bytes that wait for cells.
    unflushed: usize,
    polls: u32,
    /// Windows that were begun, and the one that is not finished.
    windows: u64,
    opening: Option<Opening>,
    armed: Armed,
    teller: Teller,
    /// The last number that `armed` held, besides 0.
    wish: u32,
    bell: Bell,
    /// Readable when the bell rings or a peer ends.
    wake: OwnedFd,
}

/// Our halves of a link's two rings.
#[derive(Debug)]
struct End {
    producer: Producer<Arc<Mapping>>,
    consumer: Consumer<Arc<Mapping>>,
}

#[derive(Debug)]
struct Peer {
    armed: Armed,
    hearer: Hearer,
    bell: Bell,
    /// The last wish of the peer that we fulfilled.
    rung: Cell<u32>,
    /// Open as long as the peer is known to live.
    socket: Option<OwnedFd>,
}

impl Shm {
    /// Begins to listen for the host's other ranks. Does not block.
    ///
    /// # Errors
    /// The system gives no socket, or `config.lanes` is 0 or beyond `limits::LANES_MAX`.
    pub fn listen(config: Config) -> io::Result<Pending> {
        Pending::listen(config)
    }

    /// Whether `peer` is reached by this transport.
    #[must_use]
    pub fn reaches(&self, peer: Rank) -> bool {
        self.places.get(peer.index()).is_some_and(|place| *place != NOWHERE)
    }

    /// Puts together what the peers, in order, handed over.
    fn assemble(host: Host, met: Vec<Met>) -> Result<Self, ConnectError> {
        let Host { lanes, offers, segment, bell, .. } = host;
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let datum = epoll::EventData::new_u64(OWN_BELL);
        epoll::add(&wake, &bell, datum, epoll::EventFlags::IN).map_err(io::Error::from)?;
        let mut shm = Self {
            lanes,
            offers,
            reads_all: offers != Offers::Never,
            places: Vec::new(),
            peers: Vec::with_capacity(met.len()),
            ends: Vec::with_capacity(met.len() * lanes),
            unflushed: 0,
            polls: 0,
            windows: 0,
            opening: None,
            armed: segment.armed(),
            teller: Teller::new(segment.board()),
            wish: 0,
            bell,
            wake,
        };
        let mut hidden = None;
        for (index, met) in met.into_iter().enumerate() {
            let peer = met.peer;
            if let Err(why) = shm.join(&segment, index, met)? {
                hidden.get_or_insert((peer, why));
            }
        }
        if let Some((peer, why)) = hidden {
            shm.reads_all = false;
            tracing::info!(
                "long messages go by rings, as the memory of rank {peer} cannot be read: {why}; \
                 kernel.yama.ptrace_scope=0 or the capability SYS_PTRACE would allow it"
            );
        }
        Ok(shm)
    }

    /// Adds a peer; or why its memory cannot be read.
    fn join(
        &mut self,
        segment: &Segment,
        index: usize,
        met: Met,
    ) -> Result<io::Result<()>, ConnectError> {
        let Met { peer, socket, file, bell, block_at } = met;
        let unfit = |source| ConnectError::Unreachable { peer, source };
        let remote = Remote::map(&file, block_at, self.lanes).map_err(unfit)?;
        let bell = Bell::received(bell).map_err(unfit)?;
        let datum = epoll::EventData::new_u64(index as u64);
        // Only its end: nobody writes to it any more, and who does must not wake us.
        epoll::add(&self.wake, &socket, datum, epoll::EventFlags::RDHUP)
            .map_err(io::Error::from)?;
        if self.places.len() <= peer.index() {
            self.places.resize(peer.index() + 1, NOWHERE);
        }
        self.places[peer.index()] = u32::try_from(index).unwrap_or(NOWHERE);
        let mut consumers = segment.consumers(index);
        let process = match self.offers {
            Offers::Never => Ok(None),
            Offers::Asked | Offers::From(_) => Process::find(&socket, remote.token).map(Some),
        };
        if let Ok(Some(process)) = process {
            consumers.iter_mut().for_each(|consumer| consumer.take_offers(process));
        }
        let ends = remote.producers.into_iter().zip(consumers);
        self.ends.extend(ends.map(|(producer, consumer)| End { producer, consumer }));
        let (armed, hearer, rung) = (remote.armed, Hearer::new(remote.board), Cell::new(0));
        self.peers.push(Peer { armed, hearer, bell, rung, socket: Some(socket) });
        Ok(process.map(drop))
    }

    /// The peer's place and the link's, in their tables.
    #[inline]
    fn place(&self, link: Link) -> Option<(usize, usize)> {
        let place = *self.places.get(link.peer.index())?;
        let lane = link.lane.index();
        if place == NOWHERE || lane >= self.lanes {
            return None;
        }
        Some((place as usize, place as usize * self.lanes + lane))
    }

    /// Notices which peers have ended, and silences the bell. Returns whether anything rang.
    fn look(&mut self) -> bool {
        let mut rang = false;
        loop {
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 32];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let Ok((events, _)) = epoll::wait(&self.wake, &mut events[..], Some(&now)) else {
                return rang;
            };
            if events.is_empty() {
                return rang;
            }
            rang = true;
            for event in events {
                match usize::try_from(event.data.u64()).ok().and_then(|at| self.peers.get_mut(at)) {
                    Some(peer) => {
                        if let Some(socket) = peer.socket.take() {
                            epoll::delete(&self.wake, &socket).ok();
                        }
                    }
                    None => self.bell.silence(),
                }
            }
        }
    }

    /// Wakes the peers that wish it, after something was published to all.
    #[inline]
    fn notify_all(&self) {
        // As in `Peer::notify`, once for all.
        fence(Ordering::SeqCst);
        for peer in &self.peers {
            peer.wake_if_armed();
        }
    }

    /// Announces what waits for cells, as far as there is room. Returns whether anything moved.
    #[cold]
    fn flush(&mut self) -> bool {
        let mut moved = false;
        let mut unflushed = 0;
        for (at, end) in self.ends.iter_mut().enumerate() {
            let link = &mut end.producer;
            if link.is_flushed() {
                continue;
            }
            let peer = &mut self.peers[at / self.lanes];
            match link.flush() {
                Ok(flushed) if peer.socket.is_some() => {
                    if flushed {
                        peer.notify();
                        moved = true;
                    }
                    unflushed += usize::from(!link.is_flushed());
                }
                // Nobody will read it; the next use of the link says why.
                _ => link.abandon(),
            }
        }
        self.unflushed = unflushed;
        moved
    }
}

impl Peer {
    /// Wakes the peer if it wishes, after something was published to it.
    #[inline]
    fn notify(&self) {
        // Pairs with the fence in `arm`: either we see the wish, or the peer sees what we published
        // when it tries once more.
        fence(Ordering::SeqCst);
        self.wake_if_armed();
    }

    #[inline]
    fn wake_if_armed(&self) {
        let wish = self.armed.word().load(Ordering::Relaxed);
        if wish != 0 {
            self.wake(wish);
        }
    }

    #[cold]
    fn wake(&self, wish: u32) {
        if self.rung.replace(wish) != wish {
            self.bell.ring();
        }
    }
}

impl Transport for Shm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            inline_bytes: INLINE_BYTES,
            window_bytes: DATA_BYTES as usize,
            shares_memory: true,
        }
    }

    #[inline]
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        let Some((peer, at)) = self.place(link) else { return Err(unknown(link)) };
        let (peer, producer) = (&mut self.peers[peer], &mut self.ends[at].producer);
        if peer.socket.is_some() && producer.push_short(tag, bytes) {
            producer.expect();
            peer.notify();
            return Ok(bytes.len());
        }
        self.send_long(link, tag, bytes, false)
    }

    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send_long(link, tag, bytes, true)
    }

    fn takes_offers(&self) -> bool {
        self.offers != Offers::Never && self.reads_all
    }

    fn is_offering(&self) -> bool {
        self.ends.iter().any(|end| end.producer.is_offering())
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
        let Some((peer, at)) = self.place(link) else { return Exchanged::Nothing };
        let peer = &mut self.peers[peer];
        let End { producer, consumer } = &mut self.ends[at];
        if peer.socket.is_none() || !producer.push_short(tag, own) {
            return Exchanged::Nothing;
        }
        let taken = consumer.take_short(tag, &mut theirs[..own.len()], tries);
        // Not before: the peer may still look at the cell before.
        producer.expect();
        // A peer that sleeps can sleep on while we look for what it sent before; and what the fence
        // waits for has long happened by now.
        peer.notify();
        if taken { Exchanged::Both } else { Exchanged::Sent }
    }

    #[inline]
    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        let Some((peer, at)) = self.place(link) else { return Err(unknown(link)) };
        match self.ends[at].consumer.front() {
            Ok(Some((tag, bytes))) => Ok(Some(Fragment { tag, bytes })),
            Ok(None) if self.ends[at].consumer.offered().is_some() => self.read_ahead(link, at),
            // The peer's end was noticed before we looked at the ring, so all it sent was there.
            Ok(None) if self.peers[peer].socket.is_none() => Err(error(link, LinkFault::Closed)),
            Ok(None) => Ok(None),
            Err(why) => Err(broken(link, why)),
        }
    }

    #[inline]
    fn consume(&mut self, link: Link, bytes: usize) {
        let Some((peer, at)) = self.place(link) else {
            assert!(bytes == 0, "consumed {bytes} bytes of a link that is none");
            return;
        };
        if self.ends[at].consumer.consume(bytes) {
            self.peers[peer].notify();
        }
    }

    #[inline]
    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<(u32, usize)>, LinkError> {
        let Some((_, at)) = self.place(link) else { return Err(unknown(link)) };
        let consumer = &self.ends[at].consumer;
        if let (Ok(None), Some(offered)) = (consumer.front(), consumer.offered()) {
            if offered != tag {
                return Ok(Some((offered, 0)));
            }
            let bytes = self.read(link, at, dst)?;
            return Ok((bytes > 0).then_some((tag, bytes)));
        }
        let Some(fragment) = self.readable(link)? else { return Ok(None) };
        if fragment.tag != tag {
            return Ok(Some((fragment.tag, 0)));
        }
        let bytes = fragment.bytes.len().min(dst.len());
        copy(&mut dst[..bytes], &fragment.bytes[..bytes]);
        self.consume(link, bytes);
        Ok(Some((tag, bytes)))
    }

    fn withdraw(&mut self) {
        self.ends.iter_mut().for_each(|end| end.producer.withdraw());
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, LinkError> {
        let flushed = self.unflushed > 0 && self.flush();
        self.polls = self.polls.wrapping_add(1);
        let rang = self.polls.is_multiple_of(POLLS_PER_LOOK) && self.look();
        Ok(flushed || rang)
    }

    #[inline]
    fn is_flushed(&self) -> bool {
        self.unflushed == 0
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn arm(&mut self) {
        // Another number than before, so that peers who rang last time ring again.
        self.wish = self.wish.wrapping_add(1).max(1);
        self.armed.word().store(self.wish, Ordering::Relaxed);
        // Whatever a peer published without seeing the wish is seen by reads after this.
        fence(Ordering::SeqCst);
    }

    fn disarm(&mut self) {
        self.armed.word().store(0, Ordering::Relaxed);
        self.look();
    }

    #[inline]
    fn tell(&mut self, tag: u32) {
        self.teller.tell(tag);
        self.notify_all();
    }

    #[inline]
    fn told(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        let link = Link { peer, lane: Lane(0) };
        let Some((place, _)) = self.place(link) else { return Err(unknown(link)) };
        let peer = &self.peers[place];
        match peer.hearer.told() {
            // As in `readable`.
            Ok(None) if peer.socket.is_none() => Err(error(link, LinkFault::Closed)),
            told => told.map_err(|why| broken(link, why)),
        }
    }

    #[inline]
    fn heard(&mut self, peer: Rank) {
        if let Some((place, _)) = self.place(Link { peer, lane: Lane(0) }) {
            self.peers[place].hearer.heard();
        }
    }

    fn windows(&mut self) -> Option<&mut dyn Windows> {
        Some(self)
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.withdraw();
    }
}
