//! All-gather through staging buffers: each rank copies its block to its staging buffer and signals
//! all others. It then copies their blocks from their staging buffers.
//!
//! The call works piece by piece. Pieces use the two halves of the staging buffer in turn.
//! Signalling piece n means that the sender has finished reading piece n-2, even across calls, so
//! its place is free. Two ranks swap staging buffers after each piece instead.
//!
//! Steps: 1 for each piece. Sent by each rank: one signal for each piece, counted as one element.
//! It copies n-1 blocks from others' staging buffers.
//!
//! Source: `direct`, through staging buffers.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::chunk::part;
use crate::rails;
use crate::schedule::{Builder, Schedule};
use crate::staging::{CHUNKS, Staging, input_room, whole_lines};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "staged",
    needs: Needs::Staging { piece_len },
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::always,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    let steps = others.min(1);
    Stated { steps, sent: call.count * others + steps }
}

fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    Moved { moved: call.count * layout.size(), summed: 0 }
}

/// Elements of a piece: all staging buffers together have twice as many chunks as those of other
/// algorithms, or one each.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((2 * CHUNKS / size).max(1));
    whole_lines(call, wanted.min(input_room(call)))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, rank, longest) = (plan.size(), plan.rank, blocks.longest());
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, blocks.len(rank));
    let result = |of| blocks.slice(Buffer::Output, of);
    if size == 1 || longest == 0 {
        steps.copy(own, result(rank));
        return steps.build();
    }
    let each = piece_len(&plan.call, size, plan.chunk);
    let mut staging = Staging::new(plan, &mut steps);
    for index in 0..longest.div_ceil(each) {
        let piece = part(own, index, each);
        steps.copy(piece, staging.here(0, piece.len));
        staging.signal_all(&mut steps);
        // The second copy finds the piece in cache.
        steps.copy(piece, part(result(rank), index, each));
        for other in staging.others() {
            staging.wait(&mut steps, other);
            let theirs = part(result(other), index, each);
            steps.get(other, staging.here(0, theirs.len), theirs);
        }
        staging.next_piece(&mut steps);
    }
    staging.end_pieces(&mut steps);
    steps.build()
}
