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

use alloc::vec::Vec;

use ringfold_types::Rank;

use crate::pattern::ring;

/// A collective whose lengths only pairs of ranks know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Every rank sends a part to every rank, itself included.
    AllToAll,
    /// Every other rank sends a part to the root.
    Gather {
        /// The rank that receives.
        root: Rank,
    },
    /// The root sends a part to every other rank.
    Scatter {
        /// The rank that sends.
        root: Rank,
    },
}

impl Pairs {
    /// The ranks to which `rank` sends a message, in this order.
    #[must_use]
    pub fn receivers(self, rank: Rank, size: usize) -> Vec<Rank> {
        let (has_all, one) = match self {
            Self::AllToAll => return (0..size).map(|at| ring::after(rank, at, size)).collect(),
            Self::Gather { root } => (false, (rank != root).then_some(root)),
            Self::Scatter { root } => (rank == root, None),
        };
        let all = (1..size).filter(|_| has_all).map(|distance| ring::after(rank, distance, size));
        all.chain(one).collect()
    }

    /// The ranks from which `rank` receives a message, in this order.
    #[must_use]
    pub fn senders(self, rank: Rank, size: usize) -> Vec<Rank> {
        let (has_all, one) = match self {
            Self::AllToAll => return (0..size).map(|at| ring::before(rank, at, size)).collect(),
            Self::Gather { root } => (rank == root, None),
            Self::Scatter { root } => (false, (rank != root).then_some(root)),
        };
        let all = (1..size).filter(|_| has_all).map(|distance| ring::before(rank, distance, size));
        all.chain(one).collect()
    }
}

/// The distance by which ranks order messages: from a sender on to its receiver.
#[must_use]
pub fn distance(from: Rank, to: Rank, size: usize) -> usize {
    (to.index() + size - from.index()) % size
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use ringfold_types::limits::PARTS_AT_ONCE;

    use super::*;

    /// Performs the messages of all ranks over links that accept nothing ahead of the receiver. A
    /// message passes if it is among the first `at_once` unfinished ones of both its ends. Returns
    /// the pairs whose messages have passed, and whether any is left.
    fn performed(pairs: Pairs, size: usize, at_once: usize) -> (BTreeSet<(usize, usize)>, bool) {
        let lists = |of: fn(Pairs, Rank, usize) -> Vec<Rank>| -> Vec<Vec<Rank>> {
            (0..size).map(|rank| of(pairs, Rank::at(rank), size)).collect()
        };
        let (mut sends, mut receives) = (lists(Pairs::receivers), lists(Pairs::senders));
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
                let (passed, is_left) = performed(Pairs::AllToAll, size, at_once);
                assert!(!is_left, "{size} ranks, {at_once} at once");
                assert_eq!(passed.len(), size * size);
                for root in [0, size / 2, size - 1] {
                    let others = (0..size).filter(|rank| *rank != root);
                    let (passed, is_left) =
                        performed(Pairs::Gather { root: Rank::at(root) }, size, at_once);
                    assert!(!is_left && passed.into_iter().eq(others.clone().map(|it| (it, root))));
                    let (passed, is_left) =
                        performed(Pairs::Scatter { root: Rank::at(root) }, size, at_once);
                    assert!(!is_left && passed.into_iter().eq(others.map(|it| (root, it))));
                }
            }
        }
    }

    #[test]
    fn messages_are_in_the_order_of_their_distance() {
        for size in [1, 2, 7, 64] {
            for rank in (0..size).map(Rank::at) {
                let receivers = Pairs::AllToAll.receivers(rank, size);
                assert!(receivers.is_sorted_by_key(|to| distance(rank, *to, size)));
                let senders = Pairs::AllToAll.senders(rank, size);
                assert!(senders.is_sorted_by_key(|from| distance(*from, rank, size)));
            }
        }
    }
}
