//! Which transport leads to which peer.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use ringfold_reduce::{Kernel, Line};
use ringfold_topology::PeerMemory;
use ringfold_transport::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, Pages, Process, Rendezvous, SharedMemory,
    Transport, copy,
};
use ringfold_types::{Lane, Rank};

use crate::buffers::Buffers;

/// The transports of a communicator. A rank reaches each peer by one of them.
#[derive(Debug)]
pub(crate) struct Router {
    transports: Vec<Via>,
    /// By peer; meaningless for the rank itself.
    route: Vec<usize>,
    /// What carries the data, by peer.
    names: Vec<&'static str>,
    /// The process that has the connections.
    process: Process,
}

/// A transport, with as much of it as the router uses.
#[derive(Debug)]
pub(crate) enum Via {
    /// Its peers share memory with this rank.
    Memory(Box<dyn SharedMemory>),
    /// It carries messages only, or nobody needs more of it.
    Messages(Box<dyn Transport>),
}

impl Deref for Via {
    type Target = dyn Transport;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Memory(via) => &**via,
            Self::Messages(via) => &**via,
        }
    }
}

impl DerefMut for Via {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Memory(via) => &mut **via,
            Self::Messages(via) => &mut **via,
        }
    }
}

/// Transports that one communicator uses at once.
pub(crate) const TRANSPORTS_MAX: usize = 4;

impl Router {
    /// `route` says, for each rank, the index of the transport that leads to it, and `names` what
    /// carries the data there.
    pub(crate) fn new(transports: Vec<Via>, route: Vec<usize>, names: Vec<&'static str>) -> Self {
        debug_assert!(transports.len() <= TRANSPORTS_MAX, "room in the wait set");
        debug_assert!(route.iter().all(|via| *via < transports.len().max(1)), "routes exist");
        Self { transports, route, names, process: Process::this() }
    }

    /// Whether this process was forked from the one that has the connections.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_this()
    }

    /// The name of the transport to `peer`.
    pub(crate) fn name(&self, peer: Rank) -> &'static str {
        self.names[peer.index()]
    }

    /// Whether all peers share memory with this rank: to look for messages costs next to nothing.
    pub(crate) fn shares_memory(&self) -> bool {
        self.transports.iter().all(|via| matches!(via, Via::Memory(_)))
    }

    /// How this rank can copy from every peer's own memory. The log says why not. The first time,
    /// that takes some time, since it is tried.
    pub(crate) fn peer_memory(&mut self) -> PeerMemory {
        let mut by = self.transports.iter_mut().map(|via| via.rendezvous());
        if !by.all(|by| by.is_some_and(|by| by.takes_offers())) {
            return PeerMemory::Closed;
        }
        let mut by = self.transports.iter_mut().filter_map(|via| via.rendezvous());
        if by.all(|by| by.is_fast()) { PeerMemory::Fast } else { PeerMemory::Slow }
    }

    /// Whether a peer may be copying what was offered to it.
    pub(crate) fn is_offering(&mut self) -> bool {
        let offers = |by: &mut dyn Rendezvous| by.is_offering();
        self.transports.iter_mut().any(|via| via.rendezvous().is_some_and(offers))
    }

    /// Sends by rendezvous where the transport can, and else as `send`.
    pub(crate) fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        let via = self.to(link);
        match via.rendezvous() {
            Some(by) => by.offer(link, tag, bytes),
            None => via.send(link, tag, bytes),
        }
    }

    /// The maker of windows, if all peers share memory by one transport.
    pub(crate) fn windows(&mut self) -> Option<&mut dyn SharedMemory> {
        match self.transports.as_mut_slice() {
            [Via::Memory(only)] => Some(&mut **only),
            _ => None,
        }
    }

    /// Sends all of this rank's buffer, a cache line at most, to a rank and combines it with that
    /// rank's. Looks for that at once and `tries` times more.
    #[inline]
    pub(crate) fn exchange(
        &mut self,
        kernel: &Kernel,
        tag: u32,
        with: Rank,
        buffers: &mut Buffers<'_>,
        tries: u32,
    ) -> Exchanged {
        let mut line = Line([0; EXCHANGE_BYTES]);
        let link = Link { peer: with, lane: Lane(0) };
        let via = self.to(link);
        let (done, output) = match buffers {
            Buffers::Apart { input, output } => {
                let done = via.exchange(link, tag, input, &mut line.0, tries);
                copy(output, input);
                (done, output)
            }
            Buffers::InPlace(both) => (via.exchange(link, tag, both, &mut line.0, tries), both),
        };
        if done == Exchanged::Both {
            kernel.combine_line(output, &line);
        }
        done
    }

    #[inline]
    pub(crate) fn to(&mut self, link: Link) -> &mut dyn Transport {
        &mut *self.transports[self.route[link.peer.index()]]
    }

    /// Signals all peers, to which one transport leads. They share memory with this rank: only then
    /// does a schedule have signals.
    #[inline]
    pub(crate) fn tell(&mut self, tag: u32) {
        match self.transports.first_mut() {
            Some(Via::Memory(via)) => via.signal(tag),
            _ => unreachable!("ranks that do not share memory send messages"),
        }
    }

    /// The tag of the oldest signal of `peer` that this rank has not taken.
    #[inline]
    pub(crate) fn told(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        match &self.transports[self.route[peer.index()]] {
            Via::Memory(via) => via.signalled(peer),
            Via::Messages(_) => Ok(None),
        }
    }

    /// Takes the signal that `told` has returned.
    #[inline]
    pub(crate) fn heard(&mut self, peer: Rank) {
        if let Via::Memory(via) = &mut self.transports[self.route[peer.index()]] {
            via.take_signal(peer);
        }
    }

    #[inline]
    pub(crate) fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        self.transports[self.route[link.peer.index()]].readable(link)
    }

    /// Polls every transport; whether anything happened.
    pub(crate) fn poll(&mut self) -> Result<bool, LinkError> {
        self.transports.iter_mut().try_fold(false, |moved, via| Ok(via.poll()? || moved))
    }

    /// Memory of which some transport may read messages where they lie, if there is one that does
    /// such things.
    pub(crate) fn pages(&mut self, bytes: usize) -> Option<io::Result<Pages>> {
        let maker = self.transports.iter_mut().find_map(|via| via.registered_memory());
        maker.map(|by| by.pages(bytes))
    }

    pub(crate) fn withdraw(&mut self) {
        self.transports.iter_mut().for_each(|via| via.withdraw());
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.transports.iter().all(|via| via.is_flushed())
    }

    pub(crate) fn arm(&mut self) {
        self.transports.iter_mut().for_each(|via| via.arm());
    }

    pub(crate) fn disarm(&mut self) {
        self.transports.iter_mut().for_each(|via| via.disarm());
    }

    pub(crate) fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.transports.iter().map(|via| via.wake_fd())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if self.is_forked() {
            // To end them would tell the peers that the parent has left.
            std::mem::forget(std::mem::take(&mut self.transports));
        }
    }
}
