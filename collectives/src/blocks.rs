//! The blocks of the ranks in a buffer that has one for each. Their lengths may differ.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use ringfold_types::{Buffer, Rank, Slice};

/// The block of each rank, in rank order: where it begins in the caller's buffer, and its length,
/// both in elements. All ranks give the same lengths. Each may place the blocks elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocks(Arc<[Block]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Block {
    /// The first element, in the caller's buffer.
    at: usize,
    len: usize,
    /// The elements of all blocks before it.
    before: usize,
}

impl Blocks {
    /// The blocks that begin and end at these elements.
    ///
    /// # Panics
    /// If there is no block, or a range ends before it begins.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut before = 0;
        let block = |range: Range<usize>| {
            assert!(range.start <= range.end, "a block ends after its begin");
            let block = Block { at: range.start, len: range.len(), before };
            before += block.len;
            block
        };
        let blocks: Vec<Block> = ranges.into_iter().map(block).collect();
        assert!(!blocks.is_empty(), "each rank has a block");
        Self(blocks.into())
    }

    /// Blocks of these lengths, one after the other.
    ///
    /// # Panics
    /// If there is no length.
    #[must_use]
    pub fn in_order(lens: impl IntoIterator<Item = usize>) -> Self {
        let mut end = 0;
        Self::new(lens.into_iter().map(|len| {
            end += len;
            end - len..end
        }))
    }

    /// `size` blocks of `len` elements, one after the other.
    pub(crate) fn equal(len: usize, size: usize) -> Self {
        Self::in_order(core::iter::repeat_n(len, size))
    }

    /// Number of blocks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// The lengths of the blocks, in rank order.
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|block| block.len)
    }

    /// The length of a rank's block.
    #[must_use]
    pub fn len(&self, rank: Rank) -> usize {
        self.0[rank.index()].len
    }

    /// A rank's block, in the caller's `buffer` that has all of them.
    #[must_use]
    pub fn slice(&self, buffer: Buffer, rank: Rank) -> Slice {
        let Block { at, len, .. } = self.0[rank.index()];
        Slice::new(buffer, at, len)
    }

    /// The elements of all blocks before that of a rank.
    #[must_use]
    pub fn before(&self, rank: Rank) -> usize {
        self.0[rank.index()].before
    }

    /// The elements of `count` blocks, that of `from` first. The block of rank 0 follows that of
    /// the last rank.
    pub(crate) fn around(&self, from: Rank, count: usize) -> usize {
        let (size, from) = (self.size(), from.index());
        let before =
            |index: usize| self.0.get(index).map_or_else(|| self.total(), |block| block.before);
        match (from + count).checked_sub(size) {
            None => before(from + count) - before(from),
            Some(wrapped) => self.total() - before(from) + before(wrapped),
        }
    }

    /// The length of the longest block.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.lens().max().unwrap_or(0)
    }

    /// The elements of all blocks together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.last().map_or(0, |last| last.before + last.len)
    }

    /// The average length of a block, rounded up.
    pub(crate) fn average(&self) -> usize {
        self.total().div_ceil(self.size())
    }

    /// The elements of the shortest buffer that has all blocks.
    #[must_use]
    pub fn end(&self) -> usize {
        let blocks = self.0.iter().filter(|block| block.len > 0);
        blocks.map(|block| block.at + block.len).max().unwrap_or(0)
    }
}

impl fmt::Display for Blocks {
    /// As in `blocks of 3, 0, 5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blocks of ")?;
        self.lens().enumerate().try_for_each(|(rank, len)| {
            let comma = if rank == 0 { "" } else { ", " };
            write!(f, "{comma}{len}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_blocks_go_around_the_end() {
        let blocks = Blocks::new([9..12, 0..0, 2..7]);
        assert_eq!((blocks.size(), blocks.total(), blocks.longest(), blocks.end()), (3, 8, 5, 12));
        assert_eq!((0..=3).map(|n| blocks.around(Rank(2), n)).collect::<Vec<_>>(), [0, 5, 8, 8]);
        assert_eq!((0..=3).map(|n| blocks.around(Rank(0), n)).collect::<Vec<_>>(), [0, 3, 3, 8]);
        assert_eq!(blocks.slice(Buffer::Output, Rank(2)), Slice::new(Buffer::Output, 2, 5));
        assert_eq!(Blocks::in_order([3, 0, 5]).slice(Buffer::Input, Rank(2)).offset, 3);
        assert_eq!(Blocks::equal(4, 3), Blocks::in_order([4, 4, 4]));
    }
}
