//! Cuts counts into blocks and chunks. No other file divides counts.

use core::ops::Range;

use ringfold_types::{Buffer, Slice};

use crate::plan::ScheduleParams;
use crate::schedule::Form;

/// Elements to which block borders are rounded, where blocks are so large that it does not matter:
/// a cache line of `f32`.
const GRAIN: usize = 16;

impl ScheduleParams<'_> {
    /// Elements of `form` that an idle link always accepts before its receiver takes any.
    #[must_use]
    pub fn eager(&self, form: Form) -> usize {
        self.window_bytes / form.data_type(&self.call).bytes()
    }
}

/// Block `index` of `count` elements of `buffer` that are cut into `parts` blocks in order. The
/// sizes of blocks differ by at most one grain. Blocks may be empty.
///
/// # Panics
/// If `parts` is 0 or `index` is not below it.
#[must_use]
pub fn block(buffer: Buffer, count: usize, parts: usize, index: usize) -> Slice {
    assert!(index < parts, "block {index} of {parts}");
    blocks(buffer, count, parts, index, index + 1)
}

/// Blocks `first..last` of `parts` as one slice.
///
/// # Panics
/// If `parts` is 0 or the range is not within `0..parts`.
#[must_use]
pub fn blocks(buffer: Buffer, count: usize, parts: usize, first: usize, last: usize) -> Slice {
    assert!(first <= last && last <= parts, "blocks {first}..{last} of {parts}");
    let start = border(count, parts, first);
    Slice::new(buffer, start, border(count, parts, last) - start)
}

/// Like `blocks`, of the elements of a slice.
///
/// # Panics
/// In the same cases as `blocks`.
#[must_use]
pub fn blocks_of(slice: Slice, parts: usize, blocks: Range<usize>) -> Slice {
    let part = self::blocks(slice.buffer, slice.len, parts, blocks.start, blocks.end);
    slice.skip(part.offset).take(part.len)
}

/// Like `block`, but every border is a multiple of `grain` elements. So blocks may be empty if
/// there are few elements.
///
/// # Panics
/// If `parts` or `grain` is 0 or `index` is not below `parts`.
#[must_use]
pub fn block_of_grains(
    buffer: Buffer,
    count: usize,
    parts: usize,
    index: usize,
    grain: usize,
) -> Slice {
    assert!(index < parts, "block {index} of {parts}");
    let start = grained(count, parts, index, grain);
    Slice::new(buffer, start, grained(count, parts, index + 1, grain) - start)
}

fn border(count: usize, parts: usize, index: usize) -> usize {
    grained(count, parts, index, if count / parts >= 4 * GRAIN { GRAIN } else { 1 })
}

fn grained(count: usize, parts: usize, index: usize, grain: usize) -> usize {
    let grains = count.div_ceil(grain);
    let (each, more) = (grains / parts, grains % parts);
    ((each * index + index.min(more)) * grain).min(count)
}

/// Cuts a slice into chunks of `chunk` elements. The last one may be shorter, and an empty slice
/// has none.
///
/// # Panics
/// If `chunk` is 0.
pub fn chunks(slice: Slice, chunk: usize) -> impl DoubleEndedIterator<Item = Slice> + Clone {
    assert!(chunk > 0, "a chunk must hold at least one element");
    (0..slice.len.div_ceil(chunk)).map(move |index| slice.skip(index * chunk).take(chunk))
}

/// Part `index` of a slice that is cut into parts of `len` elements. Empty beyond the end of the
/// slice.
#[must_use]
pub fn part(slice: Slice, index: usize, len: usize) -> Slice {
    slice.skip((index * len).min(slice.len)).take(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_everything_once_and_are_even() {
        for count in [0, 1, 2, 5, 63, 64, 65, 1000, 1023, 4097] {
            for parts in 1..40 {
                let all: alloc::vec::Vec<Slice> =
                    (0..parts).map(|i| block(Buffer::Input, count, parts, i)).collect();
                assert_eq!(all[0].offset, 0);
                assert_eq!(all[parts - 1].end(), count);
                assert!(all.windows(2).all(|w| w[0].end() == w[1].offset));
                let longest = all.iter().map(|b| b.len).max().unwrap();
                let shortest = all.iter().map(|b| b.len).min().unwrap();
                assert!(longest - shortest <= if count / parts >= 64 { 31 } else { 1 });
            }
        }
    }

    #[test]
    fn blocks_of_grains_cover_everything_and_split_no_grain() {
        for count in [0, 1, 15, 16, 17, 31, 100, 1023] {
            for parts in 1..9 {
                let block = |i| block_of_grains(Buffer::Input, count, parts, i, 16);
                assert_eq!((block(0).offset, block(parts - 1).end()), (0, count));
                for i in 1..parts {
                    let border = block(i).offset;
                    assert_eq!(border, block(i - 1).end());
                    assert!(border.is_multiple_of(16) || border == count);
                }
            }
        }
    }

    #[test]
    fn chunks_cover_a_slice() {
        let slice = Slice::new(Buffer::Output, 3, 10);
        let lens: alloc::vec::Vec<usize> = chunks(slice, 4).map(|c| c.len).collect();
        assert_eq!(lens, [4, 4, 2]);
        assert_eq!(chunks(slice.take(0), 4).count(), 0);
    }
}
