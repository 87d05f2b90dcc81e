//! One group at an aggregator, without I/O: which child has handed over which chunk, the bytes, and
//! the results.
//!
//! The I/O around it asks for the memory of a child's part (`begin`), fills it, and gives it back
//! (`finish`). Once all children have handed a chunk over, the group combines it. A child hands
//! chunk c + window over only after it has received result c. So a window of slots suffices for
//! parts and results. Headers have two generations: that of chunk c + window may arrive while
//! another child still waits for result c.

use std::ops::Range;
use std::sync::Arc;

use crate::Reduction;
use crate::wire::header::{Header, Kind};
use crate::wire::links::tcp_bytes;
use rayon::ThreadPool;
use ringfold_types::limits;
use ringfold_types::{Collective, Wire};

use super::combine::Combiner;

/// The fixed facts of a group at one aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The first member below this aggregator. The others follow.
    pub first: u16,
    /// Members below each child, in the order of the children: 1 for a child that is a member.
    pub members: Vec<u16>,
    /// Ranks of the communicator, by which an average is divided.
    pub ranks: usize,
    /// Chunks that a child may be ahead.
    pub window: usize,
    /// Bytes of a child's part of a chunk, at most.
    pub chunk_bytes_max: usize,
    /// Whether this aggregator is the root of the tree.
    pub is_top: bool,
}

/// The reason why a child's message or connection is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A child broke the protocol.
    #[error("{what}")]
    Wrong {
        /// The child.
        child: usize,
        /// The reason.
        what: &'static str,
    },
    /// Children handed over different chunks.
    #[error("children {first} and {second} differ on chunk {chunk}")]
    Different {
        /// The child whose part came first.
        first: usize,
        /// The child that differs.
        second: usize,
        /// The chunk.
        chunk: u64,
    },
}

/// A group at one aggregator.
#[derive(Clone, Debug)]
pub struct Group {
    shape: Shape,
    /// The members below each child.
    members: Vec<Range<usize>>,
    pool: Option<Arc<ThreadPool>>,
    children: Vec<Child>,
    slots: Vec<Slot>,
    /// The first header of each chunk, in two generations.
    headers: Vec<Option<Header>>,
    /// Chunks that have been combined here.
    combined: u64,
    /// Chunks that have a result: as many as combined at the root of the tree.
    results: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    /// Parts that are whole.
    posted: u64,
    /// Results that have left for the child.
    delivered: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    parts: Vec<Vec<u8>>,
    /// The combined values, and at the end the result.
    result: Vec<u8>,
}

impl Shape {
    /// Whether the numbers are within their limits.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let members: usize = self.members.iter().map(|count| usize::from(*count)).sum();
        (1..=limits::AGGREGATOR_CHILDREN_MAX).contains(&self.children())
            && !self.members.contains(&0)
            && usize::from(self.first) + members <= limits::RANKS_MAX
            && (1..=limits::RANKS_MAX).contains(&self.ranks)
            && (1..=limits::OFFLOAD_WINDOW_MAX).contains(&self.window)
            && (1..=limits::OFFLOAD_CHUNK_BYTES_MAX).contains(&self.chunk_bytes_max)
    }

    /// Children of this aggregator.
    #[must_use]
    pub const fn children(&self) -> usize {
        self.members.len()
    }

    /// Bytes that the group may use: parts and results of a window of chunks, and the links by TCP.
    /// A group with a parent keeps two more generations of results for it, and the bytes that its
    /// link has not accepted yet.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let above = if self.is_top { 0 } else { 3 };
        let slots = (self.children() + 1 + above) * self.window * self.chunk_bytes_max;
        slots + tcp_bytes(self.children() + usize::from(!self.is_top))
    }
}

impl Group {
    /// Makes a group. A pool shares the work of long chunks.
    #[must_use]
    pub fn new(shape: Shape, pool: Option<Arc<ThreadPool>>) -> Self {
        let slot = Slot { parts: vec![Vec::new(); shape.children()], ..Slot::default() };
        let children = vec![Child::default(); shape.children()];
        let slots = vec![slot; shape.window];
        let headers = vec![None; 2 * shape.window];
        let mut next = usize::from(shape.first);
        let range = |count: &u16| {
            let first = next;
            next += usize::from(*count);
            first..next
        };
        let members = shape.members.iter().map(range).collect();
        Self { shape, members, pool, children, slots, headers, combined: 0, results: 0 }
    }

    /// The fixed facts.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Checks the header of a child's part, and returns the memory for its bytes.
    ///
    /// # Errors
    /// The header does not fit the group. The child's connection is of no use any more.
    pub fn begin(&mut self, child: usize, header: &Header) -> Result<Vec<u8>, Fault> {
        let wrong = |what| Err(Fault::Wrong { child, what });
        let Some(reduction) = header.reduction() else { return wrong("a message out of place") };
        let Child { posted, delivered } = self.children[child];
        let (window, bytes) = (self.shape.window as u64, header.bytes as usize);
        if header.chunk != posted {
            return wrong("a chunk out of order");
        }
        if posted >= delivered + window {
            return wrong("a chunk beyond the window");
        }
        if !reduction.op.fits(reduction.data_type) {
            return wrong("an operation that does not fit the data type");
        }
        if bytes > self.shape.chunk_bytes_max || !fits(&reduction, bytes) {
            return wrong("a chunk of a wrong length");
        }
        self.compare(child, header)?;
        let mut part = std::mem::take(&mut self.slots[place(posted, window)].parts[child]);
        resize(&mut part, bytes);
        Ok(part)
    }

    /// Takes a child's part that `begin` has checked. Combines all chunks that are now complete.
    ///
    /// # Errors
    /// Another child's part that was whole earlier differs.
    pub fn finish(&mut self, child: usize, header: &Header, part: Vec<u8>) -> Result<(), Fault> {
        self.compare(child, header)?;
        let window = self.shape.window as u64;
        self.slots[place(header.chunk, window)].parts[child] = part;
        self.children[child].posted += 1;
        while self.children.iter().all(|child| child.posted > self.combined) {
            self.combine();
        }
        Ok(())
    }

    /// Compares a header with that of the first child whose part of the chunk is whole, or keeps it
    /// if there is none.
    fn compare(&mut self, child: usize, header: &Header) -> Result<(), Fault> {
        let chunk = header.chunk;
        let first = self.children.iter().position(|child| child.posted > chunk);
        let said = &mut self.headers[place(chunk, 2 * self.shape.window as u64)];
        match (first, &said) {
            (None, _) => *said = Some(*header),
            (Some(first), Some(said)) if !is_like(said, header) => {
                return Err(Fault::Different { first, second: child, chunk });
            }
            _ => {}
        }
        Ok(())
    }

    /// The first header of a chunk.
    fn header(&self, chunk: u64) -> Option<&Header> {
        self.headers[place(chunk, 2 * self.shape.window as u64)].as_ref()
    }

    /// Combines the oldest chunk that is not combined.
    fn combine(&mut self) {
        let reduction = self.header(self.combined).and_then(Header::reduction);
        let slot = &mut self.slots[place(self.combined, self.shape.window as u64)];
        let reduction = reduction.expect("a complete chunk has a header");
        let combiner = Combiner { ranks: self.shape.ranks, is_top: self.shape.is_top };
        let part_width = match reduction.form {
            Wire::Element => reduction.data_type.bytes(),
            Wire::Accumulator => reduction.data_type.accumulator().bytes(),
        };
        let count = slot.parts[0].len() / part_width;
        let width = combiner.form(&reduction).bytes(reduction.data_type);
        resize(&mut slot.result, count * width);
        if count > 0 {
            let parts: Vec<_> = slot.parts.iter().map(Vec::as_slice).collect();
            combiner.combine(&reduction, &parts, &mut slot.result, self.pool.as_deref());
        }
        self.combined += 1;
        if self.shape.is_top {
            self.results = self.combined;
        }
    }

    /// Chunks that have been combined here. Without a parent, as many have results.
    #[must_use]
    pub const fn combined(&self) -> u64 {
        self.combined
    }

    /// The partial result of a chunk for the parent, and the header of its parts. `None` before the
    /// chunk is combined, and once it has its result.
    #[must_use]
    pub fn partial(&self, chunk: u64) -> Option<(&Header, &[u8])> {
        let slot = &self.slots[place(chunk, self.shape.window as u64)];
        let header =
            self.header(chunk).filter(|_| (self.results..self.combined).contains(&chunk))?;
        Some((header, &slot.result))
    }

    /// Takes the parent's result of the next chunk.
    ///
    /// # Panics
    /// If this aggregator is the root of the tree, or the chunk is not combined.
    pub fn take_result(&mut self, bytes: &[u8]) {
        assert!(!self.shape.is_top && self.results < self.combined, "no result is due");
        let slot = &mut self.slots[place(self.results, self.shape.window as u64)];
        resize(&mut slot.result, bytes.len());
        slot.result.copy_from_slice(bytes);
        self.results += 1;
    }

    /// The next result for a child: its header and bytes. Repeated calls return the same one until
    /// `deliver`.
    #[must_use]
    pub fn result(&self, child: usize) -> Option<(Header, &[u8])> {
        let Child { posted, delivered } = self.children[child];
        if delivered >= self.results.min(posted) {
            return None;
        }
        let slot = &self.slots[place(delivered, self.shape.window as u64)];
        let first = self.header(delivered)?;
        let bytes: &[u8] = match first.kind.collective()? {
            Collective::Reduce if !self.members[child].contains(&first.root.into()) => &[],
            _ => &slot.result,
        };
        let header =
            Header { kind: Kind::Result, bytes: u32::try_from(bytes.len()).ok()?, ..*first };
        Some((header, bytes))
    }

    /// Notes that a child's next result has left whole.
    ///
    /// # Panics
    /// If there is none.
    pub fn deliver(&mut self, child: usize) {
        let Child { posted, delivered } = self.children[child];
        assert!(delivered < self.results.min(posted), "there is no result");
        self.children[child].delivered += 1;
    }

    /// Whether a child has handed over a chunk whose result has not left.
    #[must_use]
    pub fn is_waiting(&self, child: usize) -> bool {
        self.children[child].posted > self.children[child].delivered
    }

    /// Whether a chunk has begun that has no result: it waits for children or for the parent.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.children.iter().any(|child| child.posted > self.results)
    }

    /// The children without which the oldest unfinished chunk cannot be combined. None while the
    /// parent owes the result of a chunk that is combined.
    #[must_use]
    pub fn awaited(&self) -> u64 {
        if self.results < self.combined {
            return 0;
        }
        let is_late = |child: &Child| child.posted <= self.combined;
        let late = self.children.iter().map(is_late).enumerate();
        late.map(|(at, is_late)| u64::from(is_late) << at).sum()
    }
}

/// Changes a length without more room than that, since the pool counts each byte.
fn resize(bytes: &mut Vec<u8>, length: usize) {
    bytes.reserve_exact(length.saturating_sub(bytes.len()));
    bytes.resize(length, 0);
}

/// The place of a chunk's slot.
fn place(chunk: u64, window: u64) -> usize {
    usize::try_from(chunk % window).unwrap_or(0)
}

/// Whether a part of the reduction may have this length.
fn fits(reduction: &Reduction, bytes: usize) -> bool {
    match reduction.collective {
        Collective::Barrier => bytes == 0,
        _ => bytes.is_multiple_of(reduction.input_bytes(1)),
    }
}

/// Whether two children say the same about a chunk.
fn is_like(first: &Header, second: &Header) -> bool {
    let of = |header: &Header| (header.reduction(), header.tag, header.bytes);
    of(first) == of(second)
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
