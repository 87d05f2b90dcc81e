//! Two shots: block b of every input goes straight to rank b, and the finished block goes straight
//! back to all ranks.
//!
//! A rank combines all inputs of its block in rank order, in one pass. So elements on the wire are
//! never wider than the data type, and short floats are rounded once.
//!
//! Steps: 2. Sent by each rank: 2(n-1)/n of the buffer.
//!
//! Source: the all-reduce that GPU libraries call two-shot, over links.

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::one_shot::in_rank_order;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block, part};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "two_shot",
    needs: Needs::Links,
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: rails::among_all,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: if size > 1 { 2 } else { 0 }, sent: 2 * call.count / size * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let piece = piece_len(plan, size);
    let longest = block(Buffer::Input, count, size, 0).len;
    for index in 0..longest.div_ceil(piece) {
        let of = |buffer, rank: Rank| part(block(buffer, count, size, rank.index()), index, piece);
        first_shot(&mut steps, rank, size, |to| of(Buffer::Input, to), of(Buffer::Output, rank));
        second_shot(&mut steps, rank, size, |from| of(Buffer::Output, from));
    }
    steps.build()
}

/// Elements of a block that `size` ranks send in one shot.
///
/// A rank must post all sends of a shot before it receives. When the slowest rank posts them, the
/// others have taken all of its earlier shots. So the sends fit the list of posted sends, or, if
/// they are too many for it, links accept them ahead of the receivers.
pub(super) fn piece_len(plan: &ScheduleParams<'_>, size: usize) -> usize {
    if size <= POSTED_MAX { plan.chunk } else { plan.chunk.min(plan.eager(Form::Accumulator)) }
}

/// Sends every rank the input of its block, and combines this rank's block into `result`.
pub(super) fn first_shot(
    steps: &mut Builder,
    rank: Rank,
    size: usize,
    input: impl Fn(Rank) -> Slice,
    result: Slice,
) {
    // Each rank begins with a different receiver.
    for distance in 1..size {
        let other = ring::after(rank, distance, size);
        steps.send(other, input(other));
    }
    steps.reduce(result, &in_rank_order(input(rank), rank, size));
}

/// Sends every rank the result of this rank's block, and receives the results of all other blocks.
pub(super) fn second_shot(
    steps: &mut Builder,
    rank: Rank,
    size: usize,
    result: impl Fn(Rank) -> Slice,
) {
    for distance in 1..size {
        steps.send(ring::after(rank, distance, size), result(rank));
    }
    // In place this overwrites input that `other` has taken, because its result contains it.
    for distance in 1..size {
        let other = ring::before(rank, distance, size);
        steps.recv(other, result(other));
    }
}
