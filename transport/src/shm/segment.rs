//! The memory that a rank shares with its host's other ranks: a page on which it says whether it
//! wants to be woken, tells how far it is, and shows its token, and its inbound rings, one per peer
//! and lane.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use ringfold_types::limits::TELLS_MAX;

use super::attach::Token;
use super::ring::{Consumer, Producer, RING_BYTES, Ring};
use crate::sys::{Access, Mapping, sealed_memory};

/// Parts of a segment begin at multiples of this, which is one of every page size there is.
const PART_BYTES: usize = 64 * 1024;
/// Where the token is shown, in a line of its own.
const CARD_AT: usize = 64;
/// Where it tells how far it is, in another.
const BOARD_AT: usize = 128;

/// One rank's own segment, zeroed.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: OwnedFd,
    memory: Arc<Mapping>,
    lanes: usize,
}

impl Segment {
    pub(super) fn new(peers: usize, lanes: usize) -> io::Result<Self> {
        let bytes = PART_BYTES + peers * block_bytes(lanes);
        let file = sealed_memory(c"ringfold", bytes)?;
        let memory = Arc::new(Mapping::new(&file, 0, bytes, Access::ReadWrite)?);
        Card::of(&memory).fill()?;
        Ok(Self { file, memory, lanes })
    }

    /// Where the rings of peer number `index` begin.
    pub(super) fn block_at(&self, index: usize) -> u64 {
        (PART_BYTES + index * block_bytes(self.lanes)) as u64
    }

    /// The receiving halves of the rings of peer number `index`, by lane. Once per peer.
    pub(super) fn consumers(&self, index: usize) -> Vec<Consumer<Arc<Mapping>>> {
        let block = PART_BYTES + index * block_bytes(self.lanes);
        assert!(block + block_bytes(self.lanes) <= self.memory.bytes());
        (0..self.lanes).map(|lane| Consumer::new(ring(&self.memory, block, lane))).collect()
    }

    /// Where this rank tells how far it is.
    pub(super) fn board(&self) -> Board {
        Board(Arc::clone(&self.memory))
    }

    /// Where this rank says whether it wants to be woken.
    pub(super) fn armed(&self) -> Armed {
        Armed(Arc::clone(&self.memory))
    }
}

/// A peer's segment, as far as it concerns this rank.
#[derive(Debug)]
pub(super) struct Remote {
    /// Where the peer says whether it wants to be woken.
    pub(super) armed: Armed,
    /// Where the peer tells how far it is.
    pub(super) board: Board,
    /// What it says of its memory.
    pub(super) token: Token,
    /// The sending halves of our rings there, by lane.
    pub(super) producers: Vec<Producer<Arc<Mapping>>>,
}

impl Remote {
    /// Maps what the peer handed over, of which our rings begin at `block_at`. Once per peer.
    pub(super) fn map(file: &OwnedFd, block_at: u64, lanes: usize) -> io::Result<Self> {
        if !block_at.is_multiple_of(PART_BYTES as u64) || block_at == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "rings at an odd place"));
        }
        let page = Arc::new(Mapping::new(file, 0, PART_BYTES, Access::Read)?);
        let token = Card::of(&page).read();
        let block = Mapping::new(file, block_at, block_bytes(lanes), Access::ReadWrite)?;
        let block = Arc::new(block);
        let producers = (0..lanes).map(|lane| Producer::new(ring(&block, 0, lane))).collect();
        Ok(Self { armed: Armed(Arc::clone(&page)), board: Board(page), token, producers })
    }
}

/// The word in which a rank says whether it wants to be woken: 0 if not, otherwise a number that
/// changes from one wish to the next. Written by its rank only; peers have it mapped read-only.
#[derive(Debug)]
pub(super) struct Armed(Arc<Mapping>);

impl Armed {
    #[inline]
    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is at least a page, aligned, lives as long as `self`, and its first
        // word is only ever accessed as an atomic.
        unsafe { self.0.base().cast().as_ref() }
    }
}

/// The line in which a rank tells all others how far it is. Written by its rank only; peers have it
/// mapped read-only.
#[derive(Debug)]
pub(super) struct Board(Arc<Mapping>);

impl Board {
    /// Where tell number `number` stands, and all whose numbers are multiples of `TELLS_MAX` away.
    #[inline]
    pub(super) fn word(&self, number: u32) -> &AtomicU64 {
        let at = BOARD_AT + number as usize % TELLS_MAX * size_of::<AtomicU64>();
        // SAFETY: the mapping is at least a page, of which the board is a line; aligned, as pages
        // are; it lives as long as `self`, and its words are only ever accessed as atomics. Where
        // the mapping is for reading, nobody stores (`Hearer`).
        unsafe { self.0.base().add(at).cast().as_ref() }
    }
}

/// Where a rank shows its token, before anyone else has the segment.
struct Card<'a> {
    at: &'a AtomicU64,
    value: &'a [AtomicU8; 16],
}

impl<'a> Card<'a> {
    fn of(page: &'a Mapping) -> Self {
        assert!(page.bytes() >= PART_BYTES);
        // SAFETY: in bounds by the assertion, aligned, as mapped pages are, and only ever accessed
        // as these atomics, as long as the mapping lives; nobody writes but through `fill`, which
        // is not called where the page is mapped for reading.
        unsafe {
            let card = page.base().add(CARD_AT);
            Self { at: card.cast().as_ref(), value: card.add(8).cast().as_ref() }
        }
    }

    fn fill(&self) -> io::Result<()> {
        let mut value = [0; 16];
        getrandom::fill(&mut value).map_err(|error| io::Error::other(error.to_string()))?;
        self.at.store(self.value.as_ptr().expose_provenance() as u64, Ordering::Relaxed);
        self.value.iter().zip(value).for_each(|(byte, value)| byte.store(value, Ordering::Relaxed));
        Ok(())
    }

    fn read(&self) -> Token {
        let at = usize::try_from(self.at.load(Ordering::Relaxed)).unwrap_or(0);
        Token { at, value: std::array::from_fn(|byte| self.value[byte].load(Ordering::Relaxed)) }
    }
}

/// Bytes of all rings of one peer.
fn block_bytes(lanes: usize) -> usize {
    (lanes * RING_BYTES).next_multiple_of(PART_BYTES)
}

/// The ring of `lane` in the block that begins at byte `block` of `memory`.
fn ring(memory: &Arc<Mapping>, block: usize, lane: usize) -> Ring<Arc<Mapping>> {
    let at = block + lane * RING_BYTES;
    assert!(at + RING_BYTES <= memory.bytes());
    // SAFETY: in bounds by the assertion; page-aligned, as the block and `RING_BYTES` are; the
    // mapping is writable and lives as long as the `Arc` in the ring. Segments are zeroed when
    // made, and this rank makes one half of each ring (`Segment::consumers`, `Remote::map`), a peer
    // that holds the job's secret the other.
    unsafe { Ring::new(memory.base().add(at), Arc::clone(memory)) }
}

const _: () = assert!(TELLS_MAX * size_of::<AtomicU64>() <= 64 && BOARD_AT + 64 <= PART_BYTES);
const _: () = assert!(RING_BYTES.is_multiple_of(64));
