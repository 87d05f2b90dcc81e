//! The parts of a buffer that uneven collectives send and receive.

use std::ops::Range;

/// The parts of a buffer, one for each rank in rank order: their lengths, and where they begin,
/// both in elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'p> {
    counts: &'p [usize],
    /// `None` if each part begins where the one before it ends.
    displacements: Option<&'p [usize]>,
}

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

    /// The bytes of each part, in a buffer of `len` bytes for `size` ranks.
    ///
    /// # Errors
    /// A text that says why they are no parts of that buffer.
    pub(crate) fn ranges(
        &self,
        element: usize,
        len: usize,
        size: usize,
    ) -> Result<Vec<Range<usize>>, String> {
        let Self { counts, displacements } = *self;
        for (name, given) in [("counts", Some(counts)), ("displacements", displacements)] {
            if let Some(given) = given.filter(|given| given.len() != size) {
                return Err(format!("there are {} {name} for {size} ranks", given.len()));
            }
        }
        let mut next = 0_usize;
        let mut ranges = Vec::with_capacity(size);
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
            ranges.push(range);
        }
        Ok(ranges)
    }
}

/// Divides `whole` into parts that begin and end at these bytes of it, in their order.
///
/// # Errors
/// A text that names two parts that overlap.
pub(crate) fn split<'b>(
    whole: &'b mut [u8],
    ranges: &[Range<usize>],
) -> Result<Vec<&'b mut [u8]>, String> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|part| ranges[*part].start);
    let mut parts: Vec<&mut [u8]> = ranges.iter().map(|_| &mut [][..]).collect();
    let (mut rest, mut at, mut last) = (whole, 0, 0);
    for part in order.into_iter().filter(|part| !ranges[*part].is_empty()) {
        let Range { start, end } = ranges[part];
        let Some(gap) = start.checked_sub(at) else {
            return Err(format!("parts {last} and {part} overlap"));
        };
        let (before, after) = std::mem::take(&mut rest).split_at_mut(gap + (end - start));
        parts[part] = &mut before[gap..];
        (rest, at, last) = (after, end, part);
    }
    Ok(parts)
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
        let split = split(&mut whole, &ranges).unwrap();
        assert_eq!(
            split.iter().map(|part| part.first()).collect::<Vec<_>>(),
            [Some(&12), None, Some(&0)]
        );
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
        let text = split(&mut whole, &[8..12, 0..4, 3..9]).unwrap_err();
        assert_eq!(text, "parts 1 and 2 overlap");
        assert!(split(&mut whole, &[8..12, 8..8, 0..8]).is_ok());
    }
}
