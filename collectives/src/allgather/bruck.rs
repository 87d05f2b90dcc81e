//! Bruck: in each round a rank gets all blocks that the rank at twice the distance has, in one
//! message.
//!
//! A rank keeps blocks in scratch, in the order in which they arrive: its own, then those of the
//! ranks after it. Before the round of distance d it has d blocks. In that round it receives the
//! next d blocks from the rank d after it, and sends its own d to the rank d before it. In the end
//! it rotates the blocks into place. No algorithm needs fewer messages, for any number of ranks.
//! The price is one more copy, so this is for short messages.
//!
//! In each round a rank waits only for messages of the same or an earlier round.
//!
//! Steps: ceil(log2 n). Sent by each rank: n-1 blocks.
//!
//! Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
//! communications in multiport message-passing systems", 1997.

use ringfold_topology::{Layout, Order};
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::pattern::dissemination::{distances, rounds};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "bruck",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: |_, layout| rails::around(layout, &Order::default(), distances(layout.size())),
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: rounds(size), sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, rank) = (plan.size(), plan.rank);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let staged = steps.scratch(blocks.total());
    let own = Slice::new(Buffer::Input, 0, blocks.len(rank));
    steps.copy(own, staged.take(own.len));
    for distance in distances(size) {
        let count = distance.min(size - distance);
        let to = ring::before(rank, distance, size);
        steps.send(to, staged.take(blocks.around(rank, count)));
        let from = ring::after(rank, distance, size);
        let gotten = staged.skip(blocks.around(rank, distance)).take(blocks.around(from, count));
        steps.recv(from, gotten);
    }
    // Blocks that follow each other in the output too are copied together.
    let (mut run, mut at) = (Slice::new(Buffer::Output, 0, 0), 0);
    for distance in 0..size {
        let block = blocks.slice(Buffer::Output, ring::after(rank, distance, size));
        if block.offset == run.end() {
            run.len += block.len;
        } else if block.len > 0 {
            steps.copy(staged.skip(at).take(run.len), run);
            (run, at) = (block, at + run.len);
        }
    }
    steps.copy(staged.skip(at), run);
    steps.build()
}
