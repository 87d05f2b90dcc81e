//! Reduce-scatter through staging buffers: each rank copies the others' blocks to its staging
//! buffer and signals. It then combines its own block straight from the others' staging buffers.
//!
//! All ranks combine in rank order, in one pass, so short floats are rounded once. The call works
//! piece by piece. Pieces use the two halves of the staging buffer in turn. Signalling piece n
//! means that the sender has finished with piece n-2, even across calls, so its place is free. Two
//! ranks swap staging buffers after each piece instead.
//!
//! Steps: 1 for each piece. Sent by each rank: one signal for each piece, counted as one element.
//! It reads n-1 blocks from others' staging buffers.
//!
//! Source: `direct`, through staging buffers.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::chunk::part;
use crate::rails;
use crate::schedule::{Builder, Schedule, Source};
use crate::staging::{CHUNKS, Staging, block_place, block_room, whole_lines};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "staged",
    needs: Needs::Staging { piece_len },
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::always,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

fn stated(_: &Call, layout: &Layout) -> Stated {
    let steps = (layout.size() - 1).min(1);
    Stated { steps, sent: steps }
}

fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    let size = layout.size();
    Moved { moved: call.count * (size - 1), summed: call.count * size }
}

/// Elements of a piece: the blocks of all ranks are side by side.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((CHUNKS / size).max(1));
    whole_lines(call, wanted.min(block_room(call, size)))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, rank) = (plan.size(), plan.rank);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Output, 0, blocks.len(rank));
    let input = |of| blocks.slice(Buffer::Input, of);
    if size == 1 {
        steps.reduce(own, &[Source::Local(input(rank))]);
        return steps.build();
    }
    let mut staging = Staging::new(plan, &mut steps);
    let each = piece_len(&plan.call, size, plan.chunk);
    for index in 0..blocks.longest().div_ceil(each) {
        let input = |of| part(input(of), index, each);
        let place = |of: Rank, reader: Rank| {
            staging.here(block_place(size, of, reader) * each, input(reader).len)
        };
        for other in staging.others() {
            steps.copy(input(other), place(rank, other));
        }
        staging.signal_all(&mut steps);
        staging.wait_all(&mut steps);
        let result = part(own, index, each);
        staging.combine(&mut steps, result, input(rank), |of| place(of, rank));
        staging.next_piece(&mut steps);
    }
    staging.end_pieces(&mut steps);
    steps.build()
}
