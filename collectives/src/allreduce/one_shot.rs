//! One shot: each rank sends its input to every other, and combines all inputs itself. For messages
//! so short that only the number of steps counts.
//!
//! All ranks combine in rank order, in one pass, so all have the same bits.
//!
//! Steps: 1. Sent by each rank: n-1 times the buffer.
//!
//! Source: the all-reduce that GPU libraries call one-shot, over links.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "one_shot",
    needs: Needs::Links,
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::among_all,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    // In place the result overwrites the elements that this rank has just sent, so links must
    // accept them ahead of the receiver. They do: the other ranks have taken all earlier chunks of
    // the slowest rank.
    for own in
        chunks(Slice::new(Buffer::Input, 0, count), plan.chunk.min(plan.eager(Form::Element)))
    {
        // Each rank begins with a different receiver.
        for distance in 1..size {
            steps.send(ring::after(rank, distance, size), own);
        }
        steps.reduce(Slice { buffer: Buffer::Output, ..own }, &in_rank_order(own, rank, size));
    }
    steps.build()
}

/// The inputs of all ranks in rank order. `own` is this rank's, and all have its form.
pub(super) fn in_rank_order(own: Slice, rank: Rank, size: usize) -> Vec<Source> {
    let source = |from| match from {
        _ if from == rank => Source::Local(own),
        _ => Source::Wire(from, Form::of(own.buffer)),
    };
    (0..size).map(Rank::at).map(source).collect()
}
