//! All-to-all through staging buffers: each rank copies the others' blocks to its staging buffer
//! and signals all of them at once. It then copies its blocks from their staging buffers.
//!
//! The call works piece by piece. Pieces use the two halves of the staging buffer in turn.
//! Signalling piece n means that the sender has finished reading piece n-2, even across calls, so
//! its place is free. Two ranks swap staging buffers after each piece instead.
//!
//! Steps: 1 for each piece. Sent by each rank: one signal for each piece, counted as one element.
//! It copies n-1 blocks from others' staging buffers.
//!
//! Source: `linear`, through staging buffers.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::linear::Blocks;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::rails;
use crate::schedule::{Builder, Schedule};
use crate::staging::{CHUNKS, Staging, block_place, block_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllToAll,
    name: "staged",
    needs: Needs::Staging { piece_len },
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::always,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let others = layout.size() - 1;
    let steps = others.min(1);
    Stated { steps, sent: call.count * others + steps }
}

fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    Moved { moved: 2 * call.count * (layout.size() - 1), summed: 0 }
}

/// Elements of a piece: the blocks of all ranks are side by side.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((CHUNKS / size).max(1));
    whole_lines(call, wanted.min(block_room(call, size)))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks = Blocks::of(plan);
    if size == 1 {
        steps.copy(blocks.to(rank), blocks.from(rank));
        return steps.build();
    }
    let mut staging = Staging::new(plan, &mut steps);
    let each = piece_len(&call, size, plan.chunk);
    for piece in chunks(Slice::new(Buffer::Input, 0, call.count), each) {
        let part = |block: Slice| block.skip(piece.offset).take(piece.len);
        let place =
            |of: Rank, reader: Rank| staging.here(block_place(size, of, reader) * each, piece.len);
        for other in staging.others() {
            steps.copy(part(blocks.to(other)), place(rank, other));
        }
        staging.signal_all(&mut steps);
        // The others copy meanwhile.
        steps.copy(part(blocks.to(rank)), part(blocks.from(rank)));
        for other in staging.others() {
            staging.wait(&mut steps, other);
            steps.get(other, place(other, rank), part(blocks.from(other)));
        }
        staging.next_piece(&mut steps);
    }
    staging.end_pieces(&mut steps);
    steps.build()
}
