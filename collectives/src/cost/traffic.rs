//! The traffic of an algorithm on equal ranks, derived from the facts that it states.

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective};

use crate::algorithm::{Algorithm, Moved, Pattern};

/// The elements and messages of the busiest rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub(super) pattern: Pattern,
    /// Messages that wait for each other.
    pub(super) steps: usize,
    /// The elements of these messages in all.
    pub(super) chain: usize,
    /// Messages that it sends, or signals that it waits for.
    pub(super) messages: usize,
    /// `Moved::moved`.
    pub(super) moved: usize,
    /// `Moved::summed`.
    pub(super) summed: usize,
    /// The moved elements that are accumulators.
    pub(super) wide: usize,
    /// Elements that all ranks together move.
    pub(super) total: usize,
}

impl Traffic {
    pub(super) fn of(algorithm: &Algorithm, call: &Call, layout: &Layout) -> Self {
        let (pattern, size) = (algorithm.pattern, layout.size());
        let stated = (algorithm.stated)(call, layout);
        let (steps, sent) = (stated.steps, stated.sent);
        let Moved { moved, summed } = (algorithm.moved)(call, layout, sent);
        let (messages, chain) = match pattern {
            Pattern::Direct => (steps * (size - 1), sent / (size - 1).max(1)),
            Pattern::AtRoot => (steps * (size - 1), moved / (size - 1).max(1)),
            Pattern::Rounds(messages) => {
                let messages = messages(size);
                (messages, sent * steps / messages.max(1))
            }
            Pattern::Subtrees => (steps, moved),
            // A rank of a chain or a tree has few neighbours, however long the way.
            Pattern::Pipelines(shares) => {
                let len = call.count / shares;
                (moved.div_ceil(len.max(1)), steps * len)
            }
            // The root first scatters the blocks. Every rank passes on as many as it does, though
            // a rank moves half of its elements on average.
            Pattern::Ring if call.collective == Collective::Broadcast => (2 * steps, sent),
            Pattern::Ring
            | Pattern::Exchange
            | Pattern::InTurn
            | Pattern::Levels(_)
            | Pattern::Variants(_) => (steps, sent),
        };
        let wide = if pattern.is_at_once() { 0 } else { summed };
        let total = match (call.collective, pattern) {
            // Every rank but the root receives the buffer once, or sends it once.
            (Collective::Broadcast | Collective::Reduce, _) => (size - 1) * call.count,
            // Half of all ranks lie below an edge of a tree, on average of its levels.
            (_, Pattern::Subtrees) => size * steps * call.count / 2,
            (_, Pattern::AtRoot) => moved,
            (Collective::AllReduce, Pattern::Pipelines(_)) => 2 * (size - 1) * call.count,
            _ => size.saturating_mul(moved),
        };
        Self { pattern, steps, chain, messages, moved, summed, wide, total }
    }

    /// The elements that ranks on the way up a tree combine for its first chunk, one after the
    /// other, before the busiest rank does.
    pub(super) fn climbs(&self, call: &Call, chunk: usize) -> u128 {
        let Pattern::Pipelines(trees) = self.pattern else { return 0 };
        if call.collective != Collective::AllReduce {
            return 0;
        }
        let below = (self.steps / 2).saturating_sub(1) as u128;
        let len = (call.count / trees).max(1);
        below * self.summed as u128 * chunk.min(len) as u128 / len as u128
    }

    /// The average work of a rank, if the busiest one does `work`.
    pub(super) fn average(&self, work: u128, size: usize) -> u128 {
        let all = self.moved as u128 * size as u128;
        let share = ((self.total as u128) << 20).checked_div(all).unwrap_or(1 << 20);
        (work * share) >> 20
    }
}
