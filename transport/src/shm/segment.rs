//! The memory that the ranks of a host share: one file without a name.
//!
//! ```text
//! header    how many ranks have left
//! slots     one per rank: see `slot`
//! links     one per pair of ranks and lane: a ring each way
//! windows   parts of windows, one window after the other (`opening`)
//! ```
//!
//! The file is sparse: it has pages only where a rank has asked for them, so that its length costs
//! nothing. The lowest rank makes it and hands it to the others when they meet. After that no
//! descriptor travels any more: a link or a window is a place in this file, which all ranks compute
//! alike and map when they use it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::process::{Resource, getrlimit};

use super::ring::{Consumer, HEAD_BYTES, Producer, RING_BYTES, Ring};
use super::slot::{SLOT_BYTES_MIN, Slot};
use crate::sys::{Mapping, Process, sealed_memory};

/// Parts of a segment begin at multiples of this, which is one of every page size there is.
pub(super) const PART_BYTES: usize = 64 * 1024;
/// Bytes before the first slot.
const HEADER_BYTES: usize = 128;
/// Bytes of the two rings of a pair's lane.
const LINK_BYTES: usize = (2 * RING_BYTES).next_multiple_of(PART_BYTES);
/// Bytes for windows. Freed places are not used again: addresses are cheap.
pub(super) const WINDOWS_BYTES: u64 = 1 << 56;

/// The layout of a segment for so many ranks and lanes: the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) ranks: usize,
    pub(super) lanes: usize,
}

/// The halves of a link that belong to one rank.
pub(super) type Halves = (Producer<Arc<Mapping>>, Consumer<Arc<Mapping>>);

/// A host's shared memory, as one rank sees it.
#[derive(Debug)]
pub(super) struct Segment {
    file: OwnedFd,
    /// Header and slots.
    memory: Arc<Mapping>,
    geometry: Geometry,
    process: Process,
}

impl Geometry {
    fn slot_bytes(self) -> usize {
        // Neighbouring lines are fetched in pairs, so no two slots share one.
        (SLOT_BYTES_MIN + self.ranks).next_multiple_of(128)
    }

    /// Bytes of header and slots.
    fn slots_bytes(self) -> usize {
        (HEADER_BYTES + self.ranks * self.slot_bytes()).next_multiple_of(PART_BYTES)
    }

    /// Where the link of two ranks' slots on a lane begins.
    fn link_at(self, slots: [usize; 2], lane: usize) -> u64 {
        let [low, high] = [slots[0].min(slots[1]), slots[0].max(slots[1])].map(|slot| slot as u64);
        let pair = if high == 0 { 0 } else { high * (high - 1) / 2 + low };
        self.slots_bytes() as u64 + (pair * self.lanes as u64 + lane as u64) * LINK_BYTES as u64
    }

    /// Where windows begin.
    pub(super) fn windows_at(self) -> u64 {
        self.link_at([0, self.ranks], 0)
    }
}

impl Segment {
    /// The segment of a host, all zero.
    pub(super) fn create(geometry: Geometry) -> io::Result<Self> {
        let least = geometry.windows_at();
        let wanted = least + WINDOWS_BYTES;
        // Beyond this limit the system would kill the process.
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if most < least {
            let ranks = geometry.ranks;
            return Err(io::Error::other(format!(
                "the file that {ranks} ranks share takes {least} bytes of address, few of them \
                 memory, and this process may make files of {most}; raise that with `ulimit -f`"
            )));
        }
        let bytes = usize::try_from(wanted.min(most)).unwrap_or(usize::MAX);
        let file = sealed_memory(c"ringfold", bytes)?;
        let segment = Self::open(file, geometry)?;
        segment.memory.populate()?;
        Ok(segment)
    }

    /// The segment in a file that another rank has made.
    pub(super) fn open(file: OwnedFd, geometry: Geometry) -> io::Result<Self> {
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|bytes| bytes < geometry.windows_at()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a file that is too short"));
        }
        let memory = Mapping::new(&file, 0, geometry.slots_bytes())?;
        Ok(Self { file, memory: Arc::new(memory), geometry, process: Process::this() })
    }

    pub(super) const fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether this is the process that met the others. A child that was forked is not: its parent
    /// still owns all that the child drops.
    pub(super) fn is_ours(&self) -> bool {
        self.process.is_this()
    }

    /// The slot number `index`.
    pub(super) fn slot(&self, index: usize) -> Slot {
        assert!(index < self.geometry.ranks, "slot {index}");
        let bytes = self.geometry.slot_bytes();
        Slot::new(Arc::clone(&self.memory), HEADER_BYTES + index * bytes, bytes)
    }

    /// How many ranks have left.
    #[inline]
    pub(super) fn departures(&self) -> &AtomicU32 {
        // SAFETY: the mapping is longer, page-aligned, lives as long as `self`, and its first word
        // is only ever accessed as an atomic.
        unsafe { self.memory.base().cast().as_ref() }
    }

    /// Maps the link between two slots on a lane, and makes the first pages of both of its rings.
    /// The caller has the halves of slot `own`. Once per pair of slots and lane.
    ///
    /// # Errors
    /// The system lacks memory or addresses.
    pub(super) fn link(&self, own: usize, peer: usize, lane: usize) -> io::Result<Halves> {
        let Geometry { ranks, lanes } = self.geometry;
        assert!(own.max(peer) < ranks && own != peer && lane < lanes, "no link of this host");
        let at = self.geometry.link_at([own, peer], lane);
        let memory = Arc::new(Mapping::new(&self.file, at, LINK_BYTES)?);
        let [outbound, inbound] = rings(own, peer);
        for ring in [outbound, inbound] {
            memory.make(ring..ring + HEAD_BYTES)?;
        }
        let ring = |at: usize| {
            // SAFETY: in bounds, as `LINK_BYTES` is two rings; page-aligned, as the mapping and
            // `RING_BYTES` are; the mapping is writable and lives as long as the `Arc` in the ring.
            // The file is zero where nobody has written, and no other use of it overlaps this
            // range. This rank makes one half of each ring, the peer, which holds the job's
            // secret, the other.
            unsafe { Ring::new(memory.base().add(at), Arc::clone(&memory)) }
        };
        Ok((Producer::new(ring(outbound)), Consumer::new(ring(inbound))))
    }

    /// Where the ring from `peer` to `own` begins in the file.
    pub(super) fn inbound_at(&self, own: usize, peer: usize, lane: usize) -> u64 {
        let [_, inbound] = rings(own, peer);
        self.geometry.link_at([own, peer], lane) + inbound as u64
    }

    /// Maps `bytes` bytes from `at` on, in the part for windows.
    pub(super) fn window(&self, at: u64, bytes: usize) -> io::Result<Mapping> {
        assert!(at >= self.geometry.windows_at(), "not in the part for windows");
        Mapping::new(&self.file, at, bytes)
    }

    /// Gives the pages of `bytes` bytes from `at` on back to the system.
    pub(super) fn free(&self, at: u64, bytes: u64) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&self.file, how, at, bytes) {
            tracing::warn!("{bytes} bytes of shared memory stay taken until the job ends: {error}");
        }
    }
}

/// Where in a link the ring from `own` to `peer` begins, and the other one: the lower slot writes
/// the first.
const fn rings(own: usize, peer: usize) -> [usize; 2] {
    if own < peer { [0, RING_BYTES] } else { [RING_BYTES, 0] }
}

const _: () = assert!(RING_BYTES.is_multiple_of(64) && HEAD_BYTES <= RING_BYTES);
