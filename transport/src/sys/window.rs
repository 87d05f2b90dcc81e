//! Windows: memory that every rank of a host maps. Each rank owns a part, and the others read and
//! write it in place.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use ringfold_types::Rank;

use super::copy::copy_bytes;
use super::memory::Mapping;

/// A buffer with one part per rank of the host; all parts have the same length and begin zeroed. It
/// frees itself: a rank's part exists until no rank maps it, so a rank that drops its window takes
/// nothing from the others.
///
/// Outside an exposure only this rank accesses its part. In an exposure (`expose`), ranks access
/// each other's parts without locks. A rank sees the writes of another once it has received a
/// message or a signal that the other sent afterwards. A peer that knows the job's secret and
/// breaks the protocol can spoil bytes of windows, as it can send wrong bytes. It cannot reach
/// other memory.
#[derive(Debug)]
pub struct Window {
    own: OwnPart,
    peers: PeerParts,
}

impl Window {
    /// Makes a window of mapped parts; `peers` is indexed by rank.
    pub(crate) const fn new(memory: Mapping, peers: Vec<Option<Mapping>>) -> Self {
        let own = OwnPart { memory, state: AtomicU8::new(QUIET) };
        Self { own, peers: PeerParts(peers) }
    }

    /// Lends the bytes `range` of this rank's part for reading.
    ///
    /// # Panics
    /// If the range is not within the part. Also if an exposure did not complete and the system had
    /// no memory to take the part away from the peers.
    #[must_use]
    #[inline]
    pub fn read(&self, range: Range<usize>) -> &[u8] {
        self.own.read(range)
    }

    /// Lends the bytes `range` of this rank's part for writing.
    ///
    /// # Panics
    /// Those of `read`.
    #[must_use]
    #[inline]
    pub fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        self.own.write(range)
    }

    /// Exposes this rank's part to reads and writes of peers, and gives access to their parts.
    ///
    /// # Safety
    /// Until the exposure completes, all ranks follow one protocol. While a rank accesses bytes of
    /// a part by reference or by `put`, no other rank writes to them. While a rank writes to bytes
    /// of a part, no other rank accesses them. Outside exposures of the same number no rank
    /// accesses another's part. The caller calls `complete` only when no peer will write to this
    /// rank's part any more. After `suspend` it only exposes the window again, to go on by the same
    /// protocol, or withdraws it, or drops it.
    #[must_use]
    #[inline]
    pub unsafe fn expose(&mut self) -> Exposure<'_> {
        let Self { own, peers } = self;
        Exposure { own, peers, is_complete: false }
    }

    /// As `expose`, for windows that every rank only reads during the exposure.
    ///
    /// # Safety
    /// Those of `expose`; also, no rank writes to any part.
    #[must_use]
    #[inline]
    pub unsafe fn expose_to_readers(&self) -> ReadExposure<'_> {
        let Self { own, peers } = self;
        ReadExposure { own, peers, is_complete: false }
    }

    /// Ends an exposure that was suspended and will not go on, as the drop of one does that is not
    /// complete. Without one it does nothing.
    pub fn withdraw(&self) {
        if self.own.state.load(Ordering::Relaxed) == SUSPENDED {
            self.own.detach();
        }
    }
}

/// A window that all ranks use by one protocol. If an exposure is dropped before `complete`, a peer
/// that was stopped may continue and write at any time. The drop therefore takes this rank's part
/// away from the peers: it copies the part to private memory at the same addresses, and later
/// writes of peers are lost.
#[derive(Debug)]
pub struct Exposure<'w> {
    /// This rank's part.
    pub own: &'w mut OwnPart,
    /// The other ranks' parts.
    pub peers: &'w mut PeerParts,
    is_complete: bool,
}

impl Exposure<'_> {
    /// Ends the exposure: no peer accesses this rank's part any more.
    #[inline]
    pub fn complete(&mut self) {
        self.own.complete();
        self.is_complete = true;
    }

    /// Ends this loan of the window in the middle of the exposure, which goes on.
    #[inline]
    pub fn suspend(&mut self) {
        self.own.state.store(SUSPENDED, Ordering::Relaxed);
        self.is_complete = true;
    }

    /// For two ranks: swaps this rank's part and the peer's. The peer must do the same at the same
    /// point of the protocol.
    #[inline]
    pub fn swap(&mut self) {
        if let Some(part) = self.peers.0.iter_mut().flatten().next() {
            std::mem::swap(&mut self.own.memory, part);
        }
    }
}

impl Drop for Exposure<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_complete {
            self.own.detach();
        }
    }
}

/// As `Exposure`, for a window that every rank only reads.
#[derive(Debug)]
pub struct ReadExposure<'w> {
    /// This rank's part.
    pub own: &'w OwnPart,
    /// The other ranks' parts.
    pub peers: &'w PeerParts,
    is_complete: bool,
}

impl ReadExposure<'_> {
    /// Ends the exposure: no peer accesses this rank's part any more.
    #[inline]
    pub fn complete(&mut self) {
        self.own.complete();
        self.is_complete = true;
    }

    /// Ends this loan of the window in the middle of the exposure, which goes on.
    #[inline]
    pub fn suspend(&mut self) {
        self.own.state.store(SUSPENDED, Ordering::Relaxed);
        self.is_complete = true;
    }
}

impl Drop for ReadExposure<'_> {
    #[inline]
    fn drop(&mut self) {
        // A peer that is still reading would see later writes of this rank.
        if !self.is_complete {
            self.own.detach();
        }
    }
}

/// This rank's part of a window.
#[derive(Debug)]
pub struct OwnPart {
    memory: Mapping,
    state: AtomicU8,
}

/// No exposure was suspended, as far as one has not completed.
const QUIET: u8 = 0;
/// An exposure goes on, which is suspended on this rank.
const SUSPENDED: u8 = 1;
/// The part was taken away from the peers.
const PRIVATE: u8 = 2;
/// Peers may still write to the part, so this rank must not use it.
const LOST: u8 = 3;

/// The other ranks' parts of a window, by rank.
#[derive(Debug)]
pub struct PeerParts(Vec<Option<Mapping>>);

impl OwnPart {
    /// Lends the bytes of `range` for reading.
    ///
    /// # Panics
    /// If the range is not within the part, or the part is lost.
    #[must_use]
    #[inline]
    pub fn read(&self, range: Range<usize>) -> &[u8] {
        self.assert_is_there();
        lend(&self.memory, range)
    }

    /// Lends the bytes of `range` for writing.
    ///
    /// # Panics
    /// Those of `read`.
    #[must_use]
    #[inline]
    pub fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        self.assert_is_there();
        let len = within(&self.memory, &range);
        // SAFETY: within the mapping, which is writable and lives as long as the loan. `&mut` keeps
        // other code of this process away from it. A peer uses these bytes only in an exposure and
        // not during the loan, as the caller of `expose` has promised.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().add(range.start).as_ptr(), len) }
    }

    #[inline]
    fn complete(&self) {
        if self.state.load(Ordering::Relaxed) == SUSPENDED {
            self.state.store(QUIET, Ordering::Relaxed);
        }
    }

    /// Takes the part away from the peers, or marks it as lost. Does it once.
    #[cold]
    fn detach(&self) {
        if self.state.load(Ordering::Relaxed) >= PRIVATE {
            return;
        }
        let detached = self.memory.make_private();
        let state = if detached.is_ok() { PRIVATE } else { LOST };
        self.state.store(state, Ordering::Relaxed);
        if let Err(error) = detached {
            let bytes = self.memory.bytes();
            tracing::error!("a window of {bytes} bytes is lost: no memory to copy it to: {error}");
        }
    }

    #[inline]
    fn assert_is_there(&self) {
        assert!(
            self.state.load(Ordering::Relaxed) != LOST,
            "a window of {} bytes is lost: the job failed while peers wrote to it, and this \
             process got no memory to copy it to",
            self.memory.bytes()
        );
    }
}

impl PeerParts {
    /// Lends the bytes of `range` of the part of `peer` for reading.
    ///
    /// # Panics
    /// If `peer` has no part here, as this rank itself, or the range is not within the part.
    #[must_use]
    #[inline]
    pub fn read(&self, peer: Rank, range: Range<usize>) -> &[u8] {
        lend(self.of(peer), range)
    }

    /// Copies `bytes` to the part of `peer`, from byte `at` on.
    ///
    /// # Panics
    /// Those of `read`.
    #[inline]
    pub fn put(&mut self, peer: Rank, at: usize, bytes: &[u8]) {
        let part = self.of(peer);
        let len = within(part, &(at..at + bytes.len()));
        // SAFETY: within the mapping, which is writable. `bytes` do not overlap it: `&mut` ends all
        // loans of it. No other rank accesses these bytes meanwhile, as the caller of `expose` has
        // promised.
        unsafe {
            copy_bytes(bytes.as_ptr(), part.base().add(at).as_ptr(), len);
        }
    }

    /// Lends the bytes of `range` of the parts of all peers for writing, in rank order.
    ///
    /// # Panics
    /// If the range is not within the window.
    #[inline]
    pub fn write_all(&mut self, range: &Range<usize>) -> impl Iterator<Item = &mut [u8]> {
        self.0.iter_mut().flatten().map(|part| {
            let len = within(part, range);
            // SAFETY: within the mapping, which is writable and lives as long as the loan. Each
            // part is a mapping of its own, lent once, by `&mut`. No other process accesses these
            // bytes meanwhile, as the caller of `expose` has promised.
            unsafe { std::slice::from_raw_parts_mut(part.base().add(range.start).as_ptr(), len) }
        })
    }

    /// The index of `peer` among the parts that `write_all` lends.
    #[must_use]
    #[inline]
    pub fn place(&self, peer: Rank) -> usize {
        self.0.iter().take(peer.index()).flatten().count()
    }

    #[inline]
    fn of(&self, peer: Rank) -> &Mapping {
        self.0.get(peer.index()).and_then(Option::as_ref).expect("a rank with a part")
    }
}

#[inline]
fn lend(memory: &Mapping, range: Range<usize>) -> &[u8] {
    let len = within(memory, &range);
    // SAFETY: within the mapping, which lives as long as the loan. Nobody writes to these bytes
    // during the loan. In an exposure the caller of `expose` has promised that; outside exposures
    // only this rank accesses its part.
    unsafe { std::slice::from_raw_parts(memory.base().add(range.start).as_ptr(), len) }
}

/// Checks that a range is within `memory`, and returns its length.
#[inline]
fn within(memory: &Mapping, range: &Range<usize>) -> usize {
    assert!(
        range.start <= range.end && range.end <= memory.bytes(),
        "{range:?} is beyond the window of {} bytes",
        memory.bytes()
    );
    range.end - range.start
}
