//! Memory that every rank of a host has mapped: each rank owns a part, which the others read and
//! write where it lies.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfold_types::Rank;

use super::copy::copy_bytes;
use super::memory::Mapping;

/// A buffer of every rank of a host, of the same length on all, zeroed when made. It frees itself:
/// a rank's part exists until nobody has it mapped, so dropping a window takes nothing from the
/// others.
///
/// Outside of an exposure this rank has its part for itself. In one (`expose`), ranks access each
/// other's parts without locks: a rank sees the writes of another once it has received a message
/// or a signal that the other sent afterwards. A peer that knows the job's secret and breaks the
/// protocol can spoil bytes of windows, as it can send wrong ones; other memory it cannot reach.
#[derive(Debug)]
pub struct Window {
    own: OwnPart,
    peers: PeerParts,
}

impl Window {
    /// A window of mapped parts; `peers` by rank.
    pub(crate) const fn new(memory: Mapping, peers: Vec<Option<Mapping>>) -> Self {
        let own = OwnPart { memory, is_lost: AtomicBool::new(false) };
        Self { own, peers: PeerParts(peers) }
    }

    /// The bytes `range` of this rank's part, to be read.
    ///
    /// # Panics
    /// If the range is not within the part. If an exposure did not complete and the system refused
    /// the memory to take the part from the peers.
    #[must_use]
    #[inline]
    pub fn read(&self, range: Range<usize>) -> &[u8] {
        self.own.read(range)
    }

    /// The bytes `range` of this rank's part, to be written.
    ///
    /// # Panics
    /// As `read`.
    #[must_use]
    #[inline]
    pub fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        self.own.write(range)
    }

    /// Lets peers read and write this rank's part, and gives access to theirs.
    ///
    /// # Safety
    /// Until the exposure completes, all ranks follow one protocol: whenever a rank accesses bytes
    /// of a part by reference or by `put`, no other rank writes to them, and if it writes to them,
    /// no other rank accesses them. Outside of exposures of the same number no rank accesses
    /// another's part. `complete` is called only when the peers will write to this rank's part no
    /// more.
    #[must_use]
    #[inline]
    pub unsafe fn expose(&mut self) -> Exposure<'_> {
        let Self { own, peers } = self;
        Exposure { own, peers, is_complete: false }
    }

    /// As `expose`, for windows that every rank only reads meanwhile.
    ///
    /// # Safety
    /// As `expose`; and no rank writes to any part.
    #[must_use]
    #[inline]
    pub unsafe fn expose_to_readers(&self) -> ReadExposure<'_> {
        let Self { own, peers } = self;
        ReadExposure { own, peers, is_complete: false }
    }
}

/// A window that all ranks use by one protocol. If it is dropped before it is complete, peers that
/// were stopped may go on at any time: then this rank's part is taken away from them. The part is
/// copied to private memory at the same addresses, and later writes of peers to it are lost.
#[derive(Debug)]
pub struct Exposure<'w> {
    /// This rank's part.
    pub own: &'w mut OwnPart,
    /// The other ranks' parts.
    pub peers: &'w mut PeerParts,
    is_complete: bool,
}

impl Exposure<'_> {
    /// Peers are done with this rank's part.
    #[inline]
    pub const fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Of two ranks: takes the other's part for this rank's own from now on, and its own for the
    /// other's. Whose part is whose is for the protocol to say, so the other does so too.
    #[inline]
    pub fn trade(&mut self) {
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

/// As `Exposure`, of a window that every rank only reads.
#[derive(Debug)]
pub struct ReadExposure<'w> {
    /// This rank's part.
    pub own: &'w OwnPart,
    /// The other ranks' parts.
    pub peers: &'w PeerParts,
    is_complete: bool,
}

impl ReadExposure<'_> {
    /// Peers are done with this rank's part.
    #[inline]
    pub const fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for ReadExposure<'_> {
    #[inline]
    fn drop(&mut self) {
        // Peers that go on would see what this rank writes from now on.
        if !self.is_complete {
            self.own.detach();
        }
    }
}

/// The part of a window that belongs to this rank.
#[derive(Debug)]
pub struct OwnPart {
    memory: Mapping,
    /// Whether peers may still write to it, so that this rank may not use it.
    is_lost: AtomicBool,
}

/// The parts of a window that belong to others.
#[derive(Debug)]
pub struct PeerParts(Vec<Option<Mapping>>);

impl OwnPart {
    /// The bytes of `range`, to be read.
    ///
    /// # Panics
    /// If the range is not within the part, or the part is lost.
    #[must_use]
    #[inline]
    pub fn read(&self, range: Range<usize>) -> &[u8] {
        self.assert_is_there();
        lend(&self.memory, range)
    }

    /// The bytes of `range`, to be written.
    ///
    /// # Panics
    /// As `read`.
    #[must_use]
    #[inline]
    pub fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        self.assert_is_there();
        let len = within(&self.memory, &range);
        // SAFETY: within the mapping, which is writable and lives as long as the loan. Nobody else
        // of this process has it, by `&mut`. A peer uses these bytes in an exposure only, and not
        // during the loan, as the caller of `expose` has promised.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().add(range.start).as_ptr(), len) }
    }

    /// Takes the part away from the peers, or gives it up.
    #[cold]
    fn detach(&self) {
        if let Err(error) = self.memory.make_private() {
            self.is_lost.store(true, Ordering::Relaxed);
            let bytes = self.memory.bytes();
            tracing::error!("a window of {bytes} bytes is lost: no memory to copy it to: {error}");
        }
    }

    #[inline]
    fn assert_is_there(&self) {
        assert!(
            !self.is_lost.load(Ordering::Relaxed),
            "a window of {} bytes is lost: the job failed while peers wrote to it, and this \
             process got no memory to copy it to",
            self.memory.bytes()
        );
    }
}

impl PeerParts {
    /// The bytes of `range` of the part of `peer`.
    ///
    /// # Panics
    /// If `peer` has no part, as this rank in this table, or the range is not within it.
    #[must_use]
    #[inline]
    pub fn read(&self, peer: Rank, range: Range<usize>) -> &[u8] {
        lend(self.of(peer), range)
    }

    /// Copies `bytes` to byte `at` of the part of `peer`.
    ///
    /// # Panics
    /// As `read`.
    #[inline]
    pub fn put(&mut self, peer: Rank, at: usize, bytes: &[u8]) {
        let part = self.of(peer);
        let len = within(part, &(at..at + bytes.len()));
        // SAFETY: within the mapping, which is writable. `bytes` do not overlap it: `&mut` ends all
        // loans of it. Nobody else accesses these bytes meanwhile, as the caller of `expose` has
        // promised.
        unsafe {
            copy_bytes(bytes.as_ptr(), part.base().add(at).as_ptr(), len);
        }
    }

    /// The bytes of `range` of the parts of all peers, in rank order, to be written.
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

    /// The place of `peer` among the parts that `write_all` lends.
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
    // during it: in an exposure the caller of `expose` has promised that, and outside of exposures
    // only this rank accesses its part.
    unsafe { std::slice::from_raw_parts(memory.base().add(range.start).as_ptr(), len) }
}

/// The length of a range, which is within `memory`.
#[inline]
fn within(memory: &Mapping, range: &Range<usize>) -> usize {
    assert!(range.start <= range.end && range.end <= memory.bytes(), "beyond the window");
    range.end - range.start
}
