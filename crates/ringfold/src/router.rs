//! Routes messages to transports: one transport leads to each peer.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use ringfold_lend::{lend_input, lend_output, lend_registered};
use ringfold_reduce::{Kernel, Line};
use ringfold_topology::PeerMemory;
use ringfold_transport::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, Pages, Process, Received, Registration,
    Rendezvous, SharedMemory, Transport, UserBuffer, copy,
};
use ringfold_types::limits::RDMA_LEND_BYTES;
use ringfold_types::{Lane, Rank};

use crate::buffers::Buffers;
use ringfold_innetwork::member::Offload;

/// The transports of a communicator. A rank reaches each peer by exactly one of them.
#[derive(Debug)]
pub(crate) struct Router {
    transports: Vec<Via>,
    /// The index of the transport to each rank; without meaning for this rank.
    route: Vec<usize>,
    /// The name of the transport that carries the data to each rank.
    names: Vec<&'static str>,
    /// The groups of in-network reduction, if the ranks have some.
    offload: Option<Offload>,
    /// Callers' buffers are lent to transports.
    is_leasing: bool,
    /// The caller has found no bytes since the last poll where only a poll may bring some.
    lacks_poll: Cell<bool>,
    /// The process that has the connections.
    process: Process,
}

/// A transport with the features that the router uses.
#[derive(Debug)]
pub(crate) enum Via {
    /// Its peers share memory with this rank.
    Memory(Box<dyn SharedMemory>),
    /// The transport carries messages only, or the router needs nothing else of it.
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
const TRANSPORTS_MAX: usize = 4;

/// Descriptors on which a rank parks: those of transports and of in-network reduction.
pub(crate) const WAKE_FDS_MAX: usize = TRANSPORTS_MAX + 1;

impl Router {
    /// A router over `transports`. For each rank, `route` has the index of its transport, and
    /// `names` the name of the transport that carries the data.
    pub(crate) fn new(transports: Vec<Via>, route: Vec<usize>, names: Vec<&'static str>) -> Self {
        debug_assert!(transports.len() <= TRANSPORTS_MAX, "room in the wait set");
        debug_assert!(route.iter().all(|via| *via < transports.len().max(1)), "routes exist");
        Self {
            transports,
            route,
            names,
            offload: None,
            is_leasing: false,
            lacks_poll: Cell::new(false),
            process: Process::this(),
        }
    }

    /// Replaces each transport.
    pub(crate) fn replace_each(&mut self, replace: impl FnMut(Via) -> Via) {
        self.transports = std::mem::take(&mut self.transports).into_iter().map(replace).collect();
    }

    /// Adds the groups of in-network reduction.
    pub(crate) fn set_offload(&mut self, offload: Offload) {
        self.offload = Some(offload);
    }

    /// The groups of in-network reduction, if the ranks have some.
    #[inline]
    pub(crate) const fn offload(&self) -> Option<&Offload> {
        self.offload.as_ref()
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

    /// Whether all peers share memory with this rank. Polling then costs next to nothing.
    pub(crate) fn shares_memory(&self) -> bool {
        self.transports.iter().all(|via| matches!(via, Via::Memory(_)))
    }

    /// How this rank can copy from every peer's private memory. The log says why it cannot. The
    /// first call takes longer, since it tests the copy.
    pub(crate) fn peer_memory(&mut self) -> PeerMemory {
        let mut by = self.transports.iter_mut().map(|via| via.rendezvous());
        if !by.all(|by| by.is_some_and(|by| by.can_single_copy())) {
            return PeerMemory::Closed;
        }
        let mut by = self.transports.iter_mut().filter_map(|via| via.rendezvous());
        if by.all(|by| by.is_fast()) { PeerMemory::Fast } else { PeerMemory::Slow }
    }

    /// Whether a peer may be copying a rendezvous message of this rank.
    pub(crate) fn has_reader(&mut self) -> bool {
        let has_reader = |by: &mut dyn Rendezvous| by.is_offering();
        self.transports.iter_mut().any(|via| via.rendezvous().is_some_and(has_reader))
    }

    /// Sends by rendezvous if the transport supports it, and otherwise as `send`.
    pub(crate) fn send_rendezvous(
        &mut self,
        link: Link,
        tag: u32,
        bytes: &[u8],
    ) -> Result<usize, LinkError> {
        let via = self.to(link);
        match via.rendezvous() {
            Some(by) => by.offer(link, tag, bytes),
            None => via.send(link, tag, bytes),
        }
    }

    /// The transport that makes windows, if one transport shares memory with all peers.
    pub(crate) fn windows(&mut self) -> Option<&mut dyn SharedMemory> {
        match self.transports.as_mut_slice() {
            [Via::Memory(only)] => Some(&mut **only),
            _ => None,
        }
    }

    /// Sends this rank's whole buffer, at most a cache line, to rank `with`, and combines it with
    /// the buffer of that rank. Checks for it once and then `tries` times more.
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

    /// Signals all peers. Schedules have signals only if one transport shares memory with all
    /// peers.
    #[inline]
    pub(crate) fn signal(&mut self, tag: u32) {
        match self.transports.first_mut() {
            Some(Via::Memory(via)) => via.signal(tag),
            _ => unreachable!("ranks that do not share memory send messages"),
        }
    }

    /// The tag of the oldest signal of `peer` that this rank has not taken.
    #[inline]
    pub(crate) fn signalled(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        match &self.transports[self.route[peer.index()]] {
            Via::Memory(via) => via.signalled(peer),
            Via::Messages(_) => Ok(None),
        }
    }

    /// Takes the signal that `signalled` has returned.
    #[inline]
    pub(crate) fn take_signal(&mut self, peer: Rank) {
        if let Via::Memory(via) = &mut self.transports[self.route[peer.index()]] {
            via.take_signal(peer);
        }
    }

    #[inline]
    pub(crate) fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        match &self.transports[self.route[link.peer.index()]] {
            Via::Memory(via) => via.readable(link),
            Via::Messages(via) => {
                let found = via.readable(link);
                self.lacks_poll.set(self.lacks_poll.get() || matches!(found, Ok(None)));
                found
            }
        }
    }

    #[inline]
    pub(crate) fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        match &mut self.transports[self.route[link.peer.index()]] {
            Via::Memory(via) => via.recv(link, tag, dst),
            Via::Messages(via) => {
                let received = via.recv(link, tag, dst);
                self.lacks_poll.set(self.lacks_poll.get() || matches!(received, Ok(None)));
                received
            }
        }
    }

    /// Whether the caller has found no bytes since the last poll where only a poll may bring some.
    #[inline]
    pub(crate) fn lacks_poll(&self) -> bool {
        self.lacks_poll.get()
    }

    /// Polls every transport, and the groups of in-network reduction. Whether one of them made
    /// progress.
    pub(crate) fn poll(&mut self) -> Result<bool, LinkError> {
        self.lacks_poll.set(false);
        let moved = self.offload.as_ref().is_some_and(Offload::poll);
        self.transports.iter_mut().try_fold(moved, |moved, via| Ok(via.poll()? || moved))
    }

    /// Memory registered with a transport, which sends messages from it without a copy. `None` if
    /// no transport registers memory.
    pub(crate) fn pages(&mut self, bytes: usize) -> Option<io::Result<Pages>> {
        let maker = self.transports.iter_mut().find_map(|via| via.registered_memory());
        maker.map(|by| by.pages(bytes))
    }

    /// Lends a caller's buffer to the transports that register memory, until `release`.
    fn lease(&mut self, buffer: UserBuffer) {
        for by in self.transports.iter_mut().filter_map(|via| via.registered_memory()) {
            by.lease(buffer);
            self.is_leasing = true;
        }
    }

    /// Registers a caller's buffer (not empty) with the devices of a transport, if there are any.
    pub(crate) fn register(&mut self, bytes: &mut [u8]) -> Option<Registration> {
        let mut makers = self.transports.iter_mut().filter_map(|via| via.registered_memory());
        makers.find_map(|by| by.register(lend_registered(bytes)))
    }

    /// Lends bytes that are sent, if devices may read a message there in place.
    #[inline]
    pub(crate) fn lease_input(&mut self, bytes: &[u8]) {
        if bytes.len() >= RDMA_LEND_BYTES {
            self.lease(lend_input(bytes));
        }
    }

    /// Lends bytes that are received, and sent from there, as `lease_input` does.
    #[inline]
    pub(crate) fn lease_output(&mut self, bytes: &mut [u8]) {
        if bytes.len() >= RDMA_LEND_BYTES {
            self.lease(lend_output(bytes));
        }
    }

    /// Takes all lent buffers back. From then on only their owners use them.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.is_leasing {
            self.transports
                .iter_mut()
                .filter_map(|via| via.registered_memory())
                .for_each(|by| by.release());
            self.is_leasing = false;
        }
    }

    /// Cancels all messages, and takes all lent buffers back.
    pub(crate) fn withdraw(&mut self) {
        self.transports.iter_mut().for_each(|via| via.withdraw());
        self.offload.iter().for_each(Offload::withdraw);
        self.release();
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.transports.iter().all(|via| via.is_flushed())
    }

    pub(crate) fn arm(&mut self) {
        self.transports.iter_mut().for_each(|via| via.arm());
        self.offload.iter().for_each(Offload::arm);
    }

    pub(crate) fn disarm(&mut self) {
        self.transports.iter_mut().for_each(|via| via.disarm());
        self.offload.iter().for_each(Offload::disarm);
    }

    pub(crate) fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let offload = self.offload.iter().map(Offload::wake_fd);
        self.transports.iter().map(|via| via.wake_fd()).chain(offload)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if self.is_forked() {
            // Dropping them here would tell the peers that the parent has left.
            std::mem::forget(std::mem::take(&mut self.transports));
            std::mem::forget(self.offload.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfold_transport::local::Local;

    use super::*;

    #[test]
    fn a_rank_that_found_no_message_lacks_a_poll() {
        let mut ends = Local::mesh(2).unwrap();
        let mut peer = ends.pop().unwrap();
        let via = Via::Messages(Box::new(ends.pop().unwrap()));
        let mut router = Router::new(vec![via], vec![0; 2], vec!["local"; 2]);
        let link = |peer| Link { peer: Rank(peer), lane: Lane(0) };
        assert!(!router.lacks_poll());
        assert!(router.readable(link(1)).unwrap().is_none() && router.lacks_poll());
        peer.send(link(0), 7, &[1; 8]).unwrap();
        assert!(router.readable(link(1)).unwrap().is_none(), "only a poll brings it");
        router.poll().unwrap();
        assert!(router.readable(link(1)).unwrap().is_some() && !router.lacks_poll());
        assert!(router.recv(link(1), 7, &mut [0; 8]).unwrap().is_some() && !router.lacks_poll());
        assert!(router.recv(link(1), 7, &mut [0; 8]).unwrap().is_none() && router.lacks_poll());
    }
}
