//! The memory that the ranks of a host share: one unnamed file.
//!
//! ```text
//! header    number of ranks that have left
//! slots     one per rank: see `slot`
//! links     one per pair of ranks and lane: a ring each way
//! windows   parts of windows, one window after the other (`arena`)
//! ```
//!
//! The file is sparse: it has pages only where a rank has asked for them, so its length costs
//! nothing. The lowest rank makes it and sends the descriptor to the others during setup. After
//! that no rank sends a descriptor: a link or a window is a place in this file, which all ranks
//! compute alike and map on first use.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::process::{Resource, getrlimit};

use super::ring::{Consumer, HEAD_BYTES, Producer, RING_BYTES, Ring};
use super::slot::{INTRODUCED_BYTES, SLOT_BYTES_MIN, Slot};
use crate::sys::{Mapping, Process, sealed_memory};

/// Alignment of the parts of a segment: a multiple of every page size.
pub(super) const PART_BYTES: usize = 64 * 1024;
/// Bytes before the first slot.
const HEADER_BYTES: usize = 128;
/// Bytes of the two rings of a lane of a pair of ranks.
const LINK_BYTES: usize = (2 * RING_BYTES).next_multiple_of(PART_BYTES);
/// Bytes for windows. Freed places are not reused, since addresses are plentiful.
pub(super) const WINDOWS_BYTES: u64 = 1 << 56;

/// The layout of a segment for this many ranks and lanes. It is the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
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
    layout: Layout,
    process: Process,
}

impl Layout {
    fn slot_bytes(self) -> usize {
        // CPUs fetch neighbouring lines in pairs, so no two slots share a pair.
        (SLOT_BYTES_MIN + self.ranks * INTRODUCED_BYTES).next_multiple_of(128)
    }

    /// Bytes of header and slots.
    fn slots_bytes(self) -> usize {
        (HEADER_BYTES + self.ranks * self.slot_bytes()).next_multiple_of(PART_BYTES)
    }

    /// The offset of the link of two ranks' slots on a lane.
    fn link_at(self, slots: [usize; 2], lane: usize) -> u64 {
        let [low, high] = [slots[0].min(slots[1]), slots[0].max(slots[1])].map(|slot| slot as u64);
        let pair = if high == 0 { 0 } else { high * (high - 1) / 2 + low };
        self.slots_bytes() as u64 + (pair * self.lanes as u64 + lane as u64) * LINK_BYTES as u64
    }

    /// The offset of the windows.
    pub(super) fn windows_at(self) -> u64 {
        self.link_at([0, self.ranks], 0)
    }
}

impl Segment {
    /// Makes a host's segment, all zero.
    pub(super) fn create(layout: Layout) -> io::Result<Self> {
        let least = layout.windows_at();
        let wanted = least + WINDOWS_BYTES;
        // Beyond this limit the system would kill the process.
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if most < least {
            let ranks = layout.ranks;
            return Err(io::Error::other(format!(
                "the shared file of {ranks} ranks needs a length of {least} bytes, most of them \
                 without memory, but this process may only make files of {most}; raise `ulimit -f`"
            )));
        }
        let bytes = usize::try_from(wanted.min(most)).unwrap_or(usize::MAX);
        let file = sealed_memory(c"ringfold", bytes)?;
        let segment = Self::open(file, layout)?;
        segment.memory.populate()?;
        Ok(segment)
    }

    /// Opens the segment in a file that another rank has made.
    pub(super) fn open(file: OwnedFd, layout: Layout) -> io::Result<Self> {
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|bytes| bytes < layout.windows_at()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too short"));
        }
        let memory = Mapping::new(&file, 0, layout.slots_bytes())?;
        Ok(Self { file, memory: Arc::new(memory), layout, process: Process::this() })
    }

    pub(super) const fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether this is the process that made the endpoint. A forked child is not: its parent still
    /// owns everything that the child drops.
    pub(super) fn is_ours(&self) -> bool {
        self.process.is_this()
    }

    /// The slot number `index`.
    pub(super) fn slot(&self, index: usize) -> Slot {
        assert!(index < self.layout.ranks, "slot {index}");
        let bytes = self.layout.slot_bytes();
        Slot::new(Arc::clone(&self.memory), HEADER_BYTES + index * bytes, bytes)
    }

    /// The number of ranks that have left.
    #[inline]
    pub(super) fn departures(&self) -> &AtomicU32 {
        // SAFETY: the mapping is longer and page-aligned, it lives as long as `self`, and its first
        // word is only ever accessed as an atomic.
        unsafe { self.memory.base().cast().as_ref() }
    }

    /// Maps the link between two slots on a lane, and makes the first pages of both rings. The
    /// caller gets the halves of slot `own`. Must be called once per pair of slots and lane.
    ///
    /// # Errors
    /// The system lacks memory or addresses.
    pub(super) fn link(&self, own: usize, peer: usize, lane: usize) -> io::Result<Halves> {
        let Layout { ranks, lanes } = self.layout;
        assert!(own.max(peer) < ranks && own != peer && lane < lanes, "no link of this host");
        let at = self.layout.link_at([own, peer], lane);
        let memory = Arc::new(Mapping::new(&self.file, at, LINK_BYTES)?);
        let [outbound, inbound] = rings(own, peer);
        for ring in [outbound, inbound] {
            memory.make(ring..ring + HEAD_BYTES)?;
        }
        let ring = |at: usize| {
            // SAFETY: in bounds, as `LINK_BYTES` is two rings; page-aligned, as the mapping and
            // `RING_BYTES` are; the mapping is writable and lives as long as the `Arc` in the ring.
            // The file is zero where nobody has written, and no other use of it overlaps this
            // range. This rank makes one half of each ring. The peer, which knows the job's secret,
            // makes the other.
            unsafe { Ring::new(memory.base().add(at), Arc::clone(&memory)) }
        };
        Ok((Producer::new(ring(outbound)), Consumer::new(ring(inbound))))
    }

    /// The offset of the ring from `peer` to `own` in the file.
    pub(super) fn inbound_at(&self, own: usize, peer: usize, lane: usize) -> u64 {
        let [_, inbound] = rings(own, peer);
        self.layout.link_at([own, peer], lane) + inbound as u64
    }

    /// Maps `bytes` bytes from offset `at` on, in the part for windows.
    pub(super) fn window(&self, at: u64, bytes: usize) -> io::Result<Mapping> {
        assert!(at >= self.layout.windows_at(), "not in the part for windows");
        Mapping::new(&self.file, at, bytes)
    }

    /// Returns the pages of `bytes` bytes from offset `at` on to the system.
    pub(super) fn free(&self, at: u64, bytes: u64) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&self.file, how, at, bytes) {
            tracing::warn!(
                "{bytes} bytes of shared memory stay in use until the job ends: {error}"
            );
        }
    }
}

/// The offsets in a link of the ring from `own` to `peer` and of the other one. The rank in the
/// lower slot writes the first ring.
const fn rings(own: usize, peer: usize) -> [usize; 2] {
    if own < peer { [0, RING_BYTES] } else { [RING_BYTES, 0] }
}

const _: () = assert!(RING_BYTES.is_multiple_of(64) && HEAD_BYTES <= RING_BYTES);
