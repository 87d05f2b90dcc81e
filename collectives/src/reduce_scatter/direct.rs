//! Direct: block b of every input goes straight to rank b, which combines all of them.
//!
//! A rank combines in rank order, in one pass. So elements on the wire are never wider than the
//! data type, and short floats are rounded once.
//!
//! A rank posts all sends of a piece before it receives. When the slowest rank posts them, the
//! others have taken all of its earlier pieces. So the sends fit the list of posted sends, or, if
//! they are too many for it, links accept them ahead of the receivers.
//!
//! Steps: 1. Sent by each rank: n-1 blocks.
//!
//! Source: the first shot of `allreduce/two_shot`.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::chunk::part;
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "direct",
    needs: Needs::Links,
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::among_all,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, rank) = (plan.size(), plan.rank);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let piece =
        if size <= POSTED_MAX { plan.chunk } else { plan.chunk.min(plan.eager(Form::Element)) };
    for index in 0..blocks.longest().div_ceil(piece) {
        let input = |owner| part(blocks.slice(Buffer::Input, owner), index, piece);
        let result = part(Slice::new(Buffer::Output, 0, blocks.len(rank)), index, piece);
        // Each rank begins with a different receiver.
        for distance in 1..size {
            let owner = ring::after(rank, distance, size);
            steps.send(owner, input(owner));
        }
        let source = |from| match from {
            _ if from == rank => Source::Local(input(rank)),
            _ => Source::Wire(from, Form::Element),
        };
        steps.reduce(result, &(0..size).map(Rank::at).map(source).collect::<Vec<_>>());
    }
    steps.build()
}
