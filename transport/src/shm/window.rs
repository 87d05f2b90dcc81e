//! Memory that every rank of a host has mapped: each rank owns a part, which the others read and
//! write where it lies.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfold_types::Rank;

use crate::sys::{Mapping, copy_bytes};

/// A buffer of every rank of a host, of the same length on all, zeroed when made. It frees itself:
/// a rank's part exists until nobody has it mapped, so who drops a window takes nothing from the
/// others.
///
/// Ranks access each other's parts without locks. What one writes another sees once it has received
/// what the first sent afterwards. **The users' protocol must keep everyone else away from what
/// somebody writes:** for ringfold that is a schedule, proven free of races. A peer that knows the
/// job's secret and breaks it can spoil bytes of windows, as it can send wrong ones; other memory
/// it cannot reach.
#[derive(Debug)]
pub struct Window {
    /// This rank's part.
    pub own: OwnPart,
    /// The other ranks' parts.
    pub peers: PeerParts,
}

impl Window {
    /// A window of mapped parts; `peers` by rank.
    pub(super) const fn new(own: Mapping, peers: Vec<Option<Mapping>>) -> Self {
        Self {
            own: OwnPart { memory: own, is_lost: AtomicBool::new(false) },
            peers: PeerParts(peers),
        }
    }

    /// Of two ranks: takes the other's part for this rank's own from now on, and its own for the
    /// other's. Whose part is whose is for the users' protocol to say, so the other does so too.
    #[inline]
    pub fn trade(&mut self) {
        if let Some(part) = self.peers.0.iter_mut().flatten().next() {
            std::mem::swap(&mut self.own.memory, part);
        }
    }
}

/// The part of a window that belongs to this rank.
#[derive(Debug)]
pub struct OwnPart {
    memory: Mapping,
    /// Whether peers may still write to it while this rank may not use it.
    is_lost: AtomicBool,
}

/// The parts of a window that belong to others.
#[derive(Debug)]
pub struct PeerParts(Vec<Option<Mapping>>);

impl OwnPart {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Takes the part away from the peers: from now on this rank has the bytes for itself, in
    /// private memory at the same addresses. The peers keep what they have mapped, and what they
    /// still write there is lost. It costs as much memory as the part has, and a copy of it. Where
    /// the system refuses that memory, nobody may use this part any more.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn detach(&self) -> io::Result<()> {
        let detached = self.memory.make_private();
        if detached.is_err() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        detached
    }

    /// The bytes of `range`, to be read.
    ///
    /// # Panics
    /// If the range is not within the part, or a `detach` has failed.
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
        // of this process has it, by `&mut`; a peer uses these bytes only where the users' protocol
        // lets it, and not during the loan (see `Window`).
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().add(range.start).as_ptr(), len) }
    }

    #[inline]
    fn assert_is_there(&self) {
        assert!(
            !self.is_lost.load(Ordering::Relaxed),
            "a window of {} bytes is lost: the job failed while peers wrote to it, and this \
             process got no memory to copy it to",
            self.bytes()
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
        // SAFETY: within the mapping, which is writable. `bytes` do not overlap it: `&mut`
        // ends all loans of it. That no one else
        // accesses these bytes meanwhile is what the users' protocol says (see `Window`).
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
            // part is a mapping of its own, lent once, by `&mut`. That no other process accesses
            // these bytes meanwhile is what the users' protocol says (see `Window`).
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
    // SAFETY: within the mapping, which lives as long as the loan. That nobody writes to these
    // bytes during it is what the users' protocol says (see `Window`); only a peer that holds the
    // job's secret could break that.
    unsafe { std::slice::from_raw_parts(memory.base().add(range.start).as_ptr(), len) }
}

/// The length of a range, which is within `memory`.
#[inline]
fn within(memory: &Mapping, range: &Range<usize>) -> usize {
    assert!(range.start <= range.end && range.end <= memory.bytes(), "beyond the window");
    range.end - range.start
}
