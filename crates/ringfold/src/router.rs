//! Which transport leads to which peer.

use std::io;
use std::os::fd::BorrowedFd;

use ringfold_transport::{Fragment, Link, LinkError, Pages, Process, Transport, Windows};
use ringfold_types::Rank;

/// The transports of a communicator. A rank reaches each peer by one of them.
#[derive(Debug)]
pub(crate) struct Router {
    transports: Vec<Box<dyn Transport>>,
    /// By peer; meaningless for the rank itself.
    route: Vec<usize>,
    /// What carries the data, by peer.
    names: Vec<&'static str>,
    /// The process that has the connections.
    process: Process,
}

/// Transports that one communicator uses at once.
pub(crate) const TRANSPORTS_MAX: usize = 4;

impl Router {
    /// `route` says, for each rank, the index of the transport that leads to it, and `names` what
    /// carries the data there.
    pub(crate) fn new(
        transports: Vec<Box<dyn Transport>>,
        route: Vec<usize>,
        names: Vec<&'static str>,
    ) -> Self {
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

    /// Whether all peers write straight into this rank's memory, so that looking for what has
    /// arrived costs next to nothing.
    pub(crate) fn shares_memory(&self) -> bool {
        self.transports.iter().all(|via| via.capabilities().shares_memory)
    }

    /// Whether what is offered would be copied by its receiver, whoever that is.
    pub(crate) fn takes_offers(&self) -> bool {
        self.transports.iter().all(|via| via.as_ref().takes_offers())
    }

    /// Whether a peer may be copying what was offered to it.
    pub(crate) fn is_offering(&self) -> bool {
        self.transports.iter().any(|via| via.as_ref().is_offering())
    }

    /// The maker of windows that all peers share, if there is one transport to all and it has them.
    pub(crate) fn windows(&mut self) -> Option<&mut dyn Windows> {
        match self.transports.as_mut_slice() {
            [only] => only.windows(),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn to(&mut self, link: Link) -> &mut dyn Transport {
        &mut *self.transports[self.route[link.peer.index()]]
    }

    /// Tells all peers, to which one transport leads, where there are windows.
    #[inline]
    pub(crate) fn tell(&mut self, tag: u32) {
        self.transports[0].as_mut().tell(tag);
    }

    #[inline]
    pub(crate) fn told(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        self.transports[self.route[peer.index()]].as_ref().told(peer)
    }

    #[inline]
    pub(crate) fn heard(&mut self, peer: Rank) {
        self.transports[self.route[peer.index()]].as_mut().heard(peer);
    }

    #[inline]
    pub(crate) fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        self.transports[self.route[link.peer.index()]].as_ref().readable(link)
    }

    /// Polls every transport; whether anything happened.
    pub(crate) fn poll(&mut self) -> Result<bool, LinkError> {
        self.transports.iter_mut().try_fold(false, |moved, via| Ok(via.as_mut().poll()? || moved))
    }

    /// Memory of which some transport may read messages where they lie, if there is one that does
    /// such things.
    pub(crate) fn pages(&mut self, bytes: usize) -> Option<io::Result<Pages>> {
        self.transports.iter_mut().find_map(|via| via.pages(bytes))
    }

    pub(crate) fn withdraw(&mut self) {
        self.transports.iter_mut().for_each(|via| via.withdraw());
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.transports.iter().all(|via| via.as_ref().is_flushed())
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
