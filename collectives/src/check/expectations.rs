//! The memory in which a rank has announced to receive elements: peers may write there until it has
//! received them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ringfold_types::{Rank, Slice};

use crate::program::overlap;

/// A lane, and the sender of its elements.
type Link = (usize, Rank);

/// Stretches of one link that are open at once, as transports have them.
const OPEN_MOST: usize = 2;

/// The announcements of one rank.
#[derive(Default)]
pub(super) struct Expectations {
    /// The bytes that each link has brought.
    received: BTreeMap<Link, usize>,
    /// The stretches that have not arrived, each with its first byte in the stream.
    open: Vec<(Link, usize, Slice)>,
}

impl Expectations {
    /// Announces elements, after `skip` more bytes. Returns whether there was room for that.
    pub(super) fn expect(&mut self, link: Link, skip: usize, dst: Slice) -> bool {
        if self.open.iter().filter(|(of, ..)| *of == link).count() == OPEN_MOST {
            return false;
        }
        let received = self.received.get(&link).copied().unwrap_or(0);
        self.open.push((link, received + skip, dst));
        true
    }

    /// Receives elements of `bytes` bytes, which go to `dst`: as they are if that `is_kept`.
    /// Returns whether they go where they were expected, if they were.
    pub(super) fn receive(&mut self, link: Link, dst: Slice, bytes: usize, is_kept: bool) -> bool {
        let received = self.received.entry(link).or_default();
        let (begin, end) = (*received, *received + dst.len * bytes);
        *received = end;
        for (_, from, expected) in self.open.iter_mut().filter(|(of, ..)| *of == link) {
            if end <= *from || *from + expected.len * bytes <= begin {
                continue;
            }
            let is_there = *from == begin && dst == expected.take(dst.len);
            if !is_kept || !is_there {
                return false;
            }
            (*from, *expected) = (end, expected.skip(dst.len));
        }
        self.open.retain(|(.., expected)| expected.len > 0);
        true
    }

    /// Returns whether peers may write elements of `slice`.
    pub(super) fn meets(&self, slice: Slice, overlay: Option<isize>) -> bool {
        self.open.iter().any(|(.., expected)| overlap(overlay, *expected, slice))
    }

    /// A stretch that was never received, if there is one.
    pub(super) fn left(&self) -> Option<Slice> {
        self.open.first().map(|(.., slice)| *slice)
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::Buffer;

    use super::*;

    #[test]
    fn expected_elements_land_there_and_nothing_else_is_there() {
        let slice = |offset, len| Slice::new(Buffer::Output, offset, len);
        let link = (0, Rank(1));
        let expecting = || {
            let mut it = Expectations::default();
            assert!(it.receive(link, slice(90, 1), 4, true));
            assert!(it.expect(link, 8, slice(10, 4)) && it.expect(link, 24, slice(0, 2)));
            assert!(!it.expect(link, 32, slice(20, 2)), "two are open");
            assert!(it.expect((1, Rank(1)), 0, slice(30, 2)), "another lane");
            assert!(it.meets(slice(13, 9), None) && !it.meets(slice(14, 9), None));
            assert!(it.meets(Slice::new(Buffer::Input, 3, 1), Some(2)), "the same memory");
            assert!(it.receive(link, slice(80, 2), 4, false), "those before");
            it
        };
        let mut it = expecting();
        assert!(it.receive(link, slice(10, 3), 4, true) && it.receive(link, slice(13, 1), 4, true));
        assert!(it.receive(link, slice(0, 2), 4, true) && !it.meets(slice(0, 20), None));
        assert_eq!(it.left(), Some(slice(30, 2)));
        assert!(!expecting().receive(link, slice(10, 3), 4, false), "combined");
        assert!(!expecting().receive(link, slice(11, 3), 4, true), "elsewhere");
        assert!(!expecting().receive(link, slice(10, 5), 4, true), "beyond the end");
    }
}
