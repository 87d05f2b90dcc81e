//! The parts of a buffer that uneven collectives send and receive.

use std::ops::Range;

use ringfold_collectives::Blocks;
use ringfold_types::{Buffer, Rank};

/// The parts of a buffer, one for each rank in rank order: their lengths, and where they begin,
/// both in elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'p> {
    counts: &'p [usize],
    /// `None` if each part begins where the one before it ends.
    displacements: Option<&'p [usize]>,
}

/// The counts and displacements of [`Parts::scaled`].
pub(crate) type ScaledParts = (Vec<usize>, Option<Vec<usize>>);

impl<'p> Parts<'p> {
    /// Parts of these lengths, one after the other from the beginning of the buffer.
    #[must_use]
    pub const fn new(counts: &'p [usize]) -> Self {
        Self { counts, displacements: None }
    }

    /// Parts of these lengths that begin at these elements of the buffer. An empty part may begin
    /// anywhere.
    #[must_use]
    pub const fn at(counts: &'p [usize], displacements: &'p [usize]) -> Self {
        Self { counts, displacements: Some(displacements) }
    }

    /// The lengths of the parts.
    #[must_use]
    pub const fn counts(&self) -> &'p [usize] {
        self.counts
    }

    /// The same parts in elements that are as many times as short as `by` says.
    pub(crate) fn scaled<'m>(&self, by: usize, memory: &'m mut ScaledParts) -> Parts<'m> {
        // A product beyond the address space leaves the buffer, which the call refuses.
        let scale = |all: &[usize]| all.iter().map(|it| it.saturating_mul(by)).collect();
        *memory = (scale(self.counts), self.displacements.map(scale));
        Parts { counts: &memory.0, displacements: memory.1.as_deref() }
    }

    /// Whether these parts are `blocks`. The blocks are at valid places of their buffer.
    pub(crate) fn are(&self, blocks: &Blocks) -> bool {
        let Self { counts, displacements } = *self;
        let size = blocks.size();
        let mut next = 0;
        counts.len() == size
            && displacements.is_none_or(|displacements| displacements.len() == size)
            && counts.iter().enumerate().all(|(rank, &count)| {
                let block = blocks.slice(Buffer::Output, Rank::at(rank));
                let begin = displacements.map_or(next, |displacements| displacements[rank]);
                next = begin.wrapping_add(count);
                count == block.len && (count == 0 || begin == block.offset)
            })
    }

    /// Gives `take` the bytes of each part of a buffer of `len` bytes, in rank order.
    ///
    /// # Errors
    /// A text that says why they are no parts of that buffer for `size` ranks.
    #[inline]
    pub(crate) fn each(
        &self,
        element: usize,
        len: usize,
        size: usize,
        mut take: impl FnMut(usize, Range<usize>),
    ) -> Result<(), String> {
        let Self { counts, displacements } = *self;
        for (name, given) in [("counts", Some(counts)), ("displacements", displacements)] {
            if let Some(given) = given.filter(|given| given.len() != size) {
                return Err(format!("there are {} {name} for {size} ranks", given.len()));
            }
        }
        let mut next = 0_usize;
        for (rank, &count) in counts.iter().enumerate() {
            let begin = displacements.map_or(next, |displacements| displacements[rank]);
            let end = begin.checked_add(count);
            let bytes = end.and_then(|end| end.checked_mul(element)).filter(|end| *end <= len);
            let range = match (count, bytes) {
                (0, _) => 0..0,
                (_, Some(end)) => begin * element..end,
                (_, None) => {
                    return Err(format!(
                        "part {rank}, {count} elements from element {begin}, leaves the buffer of \
                         {} elements",
                        len / element
                    ));
                }
            };
            next = end.unwrap_or(next);
            take(rank, range);
        }
        Ok(())
    }

    /// The bytes of each part, as [`each`](Self::each) gives them.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub(crate) fn ranges(
        &self,
        element: usize,
        len: usize,
        size: usize,
    ) -> Result<Vec<Range<usize>>, String> {
        let mut ranges = Vec::with_capacity(size);
        self.each(element, len, size, |_, range| ranges.push(range))?;
        Ok(ranges)
    }
}

/// Divides `whole` into parts that begin and end at these bytes of it. Gives each to `take`, in the
/// order of their places.
///
/// # Errors
/// A text that names two parts that overlap.
#[inline]
pub(crate) fn split<'b>(
    whole: &'b mut [u8],
    ranges: &[Range<usize>],
    mut take: impl FnMut(usize, &'b mut [u8]),
) -> Result<(), String> {
    let begins = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.start);
    let mut order = Vec::new();
    if !begins.is_sorted() {
        order.extend(0..ranges.len());
        order.sort_by_key(|part| ranges[*part].start);
    }
    let (mut rest, mut at, mut last) = (whole, 0, 0);
    for index in 0..ranges.len() {
        let part = order.get(index).copied().unwrap_or(index);
        let Range { start, end } = ranges[part];
        if start == end {
            take(part, &mut []);
            continue;
        }
        let Some(gap) = start.checked_sub(at) else {
            return Err(format!("parts {last} and {part} overlap"));
        };
        let (before, after) = std::mem::take(&mut rest).split_at_mut(gap + (end - start));
        take(part, &mut before[gap..]);
        (rest, at, last) = (after, end, part);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_or_begin_where_they_are_told() {
        let counts = [2, 0, 3];
        assert_eq!(Parts::new(&counts).ranges(4, 20, 3).unwrap(), [0..8, 0..0, 8..20]);
        let parts = Parts::at(&counts, &[3, usize::MAX, 0]);
        let ranges = parts.ranges(4, 20, 3).unwrap();
        assert_eq!(ranges, [12..20, 0..0, 0..12]);
        let mut whole: Vec<u8> = (0..20).collect();
        let mut firsts = [None; 3];
        split(&mut whole, &ranges, |part, bytes| firsts[part] = bytes.first().copied()).unwrap();
        assert_eq!(firsts, [Some(12), None, Some(0)]);
    }

    #[test]
    fn parts_are_the_blocks_of_equal_counts_at_equal_places() {
        let (counts, begins) = ([2, 0, 3], [3, usize::MAX, 0]);
        let blocks = Blocks::new([3..5, 0..0, 0..3]);
        assert!(Parts::at(&counts, &begins).are(&blocks));
        assert!(Parts::new(&counts).are(&Blocks::in_order(counts)));
        assert!(!Parts::new(&counts).are(&blocks), "other places");
        assert!(!Parts::at(&[2, 0, 2], &begins).are(&blocks), "another length");
        assert!(!Parts::at(&counts, &[3, 0]).are(&blocks), "a missing displacement");
        assert!(!Parts::at(&[2, 0], &[3, 0]).are(&blocks), "a missing part");
    }

    #[test]
    fn parts_that_leave_the_buffer_or_overflow_are_errors() {
        let text = |counts: &[usize], begins: &[usize]| {
            Parts::at(counts, begins).ranges(8, 80, 2).unwrap_err()
        };
        let leaves = "part 1, 4 elements from element 7, leaves the buffer of 10 elements";
        assert_eq!(text(&[1, 4], &[0, 7]), leaves);
        assert!(text(&[1, usize::MAX], &[0, 7]).contains("leaves"));
        assert!(text(&[1, 1 << 61], &[0, 0]).contains("leaves"), "the bytes overflow");
        assert!(Parts::new(&[9, usize::MAX]).ranges(8, 80, 2).unwrap_err().contains("leaves"));
        assert_eq!(text(&[1], &[0, 1]), "there are 1 counts for 2 ranks");
        assert_eq!(text(&[1, 1], &[0]), "there are 1 displacements for 2 ranks");
    }

    #[test]
    fn parts_that_overlap_are_named() {
        let mut whole = [0; 16];
        let mut text = |ranges: &[Range<usize>]| split(&mut whole, ranges, |_, _| ()).unwrap_err();
        assert_eq!(text(&[8..12, 0..4, 3..9]), "parts 1 and 2 overlap");
        assert_eq!(text(&[0..4, 3..9]), "parts 0 and 1 overlap");
        assert!(split(&mut whole, &[8..12, 8..8, 0..8], |_, _| ()).is_ok());
    }
}
