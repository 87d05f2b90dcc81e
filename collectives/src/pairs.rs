//! Collectives whose lengths only pairs of ranks know: the order of their messages.
//!
//! No rank knows the lengths between two others, so there is no schedule of all ranks to prove.
//! Instead each message carries its length, and the receiver compares it with its own. Even an
//! empty part is a message.
//!
//! Linear, throttled: a rank sends to the ranks after it, the nearest first, and receives from the
//! ranks before it, the nearest first. At most `limits::PARTS_AT_ONCE` messages of each direction
//! progress at the same time. The unfinished message of the least distance among all ranks is then
//! among those of both its ends. So some message always progresses, even over links that accept
//! nothing ahead of the receiver.

use ringfold_types::Rank;

/// The distance by which ranks order messages: from a sender on to its receiver.
#[must_use]
pub const fn distance(from: Rank, to: Rank, size: usize) -> usize {
    let (from, to) = (from.index(), to.index());
    // Without a division: ranks sort by it in every call.
    if to >= from { to - from } else { to + size - from }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use ringfold_types::limits::PARTS_AT_ONCE;

    use super::*;

    /// Performs the messages of all ranks over links that accept nothing ahead of the receiver.
    /// Rank s sends one to rank r if `has` says so for s and r. A message passes if it is among
    /// the first `at_once` unfinished ones of both its ends. Returns the pairs whose messages have
    /// passed, and whether any is left.
    fn performed(
        has: impl Fn(usize, usize) -> bool,
        size: usize,
        at_once: usize,
    ) -> (BTreeSet<(usize, usize)>, bool) {
        let ranks = || (0..size).map(Rank::at);
        let sends_of = |from: Rank| {
            let mut sends: Vec<Rank> = ranks().filter(|to| has(from.index(), to.index())).collect();
            sends.sort_by_key(|to| distance(from, *to, size));
            sends
        };
        let receives_of = |to: Rank| {
            let mut receives: Vec<Rank> =
                ranks().filter(|from| has(from.index(), to.index())).collect();
            receives.sort_by_key(|from| distance(*from, to, size));
            receives
        };
        let mut sends: Vec<Vec<Rank>> = ranks().map(sends_of).collect();
        let mut receives: Vec<Vec<Rank>> = ranks().map(receives_of).collect();
        let mut passed = BTreeSet::new();
        let mut has_moved = true;
        while core::mem::take(&mut has_moved) {
            for (from, sends) in sends.iter_mut().enumerate() {
                let open: Vec<Rank> = sends.iter().take(at_once).copied().collect();
                for to in open {
                    let front = receives[to.index()].iter().take(at_once);
                    let Some(at) = front.clone().position(|it| it.index() == from) else {
                        continue;
                    };
                    receives[to.index()].remove(at);
                    sends.retain(|it| *it != to);
                    assert!(passed.insert((from, to.index())), "a message passes once");
                    has_moved = true;
                }
            }
        }
        let is_left = sends.iter().chain(&receives).any(|list| !list.is_empty());
        (passed, is_left)
    }

    #[test]
    fn every_message_passes_for_every_size_to_64() {
        for size in 1..=64 {
            for at_once in [1, 2, 5, PARTS_AT_ONCE] {
                let (passed, is_left) = performed(|_, _| true, size, at_once);
                assert!(!is_left, "{size} ranks, {at_once} at once");
                assert_eq!(passed.len(), size * size);
                for root in [0, size / 2, size - 1] {
                    let others = (0..size).filter(|rank| *rank != root);
                    let gather = |from, to| from != root && to == root;
                    let (passed, is_left) = performed(gather, size, at_once);
                    assert!(!is_left && passed.into_iter().eq(others.clone().map(|it| (it, root))));
                    let scatter = |from, to| from == root && to != root;
                    let (passed, is_left) = performed(scatter, size, at_once);
                    assert!(!is_left && passed.into_iter().eq(others.map(|it| (root, it))));
                }
            }
        }
    }

    #[test]
    fn distances_go_on_around_the_end() {
        let of = |from, to| distance(Rank(from), Rank(to), 5);
        assert_eq!([of(1, 1), of(1, 4), of(4, 1), of(0, 4)], [0, 3, 2, 4]);
    }
}
