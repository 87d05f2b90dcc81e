//! Through stages: everyone copies its block to its stage and tells everyone so, and to its output
//! while it is in cache, and takes what it has heard of from the others' stages. Piece by piece, in
//! turn in two halves of the stage: who tells that a piece is there has taken all before the piece
//! before it, be it in another call, so that its place is free. Two ranks trade stages after each
//! piece instead.
//!
//! Steps: 1 for each piece, of one element. Sent by each rank: a tell for each piece; taken
//! from others' stages: n-1 blocks.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::chunk::chunks;
use crate::schedule::{Builder, Schedule};
use crate::stage::{CHUNKS, Stage, input_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "staged",
    needs: Needs::Stage { piece_len },
    way: Way::Direct,
    schedule,
    stated,
    moved,
    messages: |messages| messages.all_signal(),
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    let steps = others.min(1);
    Stated { steps, sent: call.count * others + steps }
}

fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    Moved { moved: call.count * layout.size(), summed: 0 }
}

/// All stages together have twice as many chunks as elsewhere, or one in each.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((2 * CHUNKS / size).max(1));
    whole_lines(call, wanted.min(input_room(call)))
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, call.count);
    let pieces: Vec<Slice> = chunks(own, piece_len(&call, size, plan.chunk)).collect();
    if size > 1 && !pieces.is_empty() {
        let mut stage = Stage::new(plan, &mut steps);
        for piece in pieces {
            let place = stage.here(0, piece.len);
            steps.copy(piece, place);
            stage.tell_all(&mut steps);
            // While it is in cache.
            steps
                .copy(piece, Slice::new(Buffer::Output, at(&call, rank) + piece.offset, piece.len));
            for other in stage.others() {
                stage.hear(&mut steps, other);
                let theirs = at(&call, other) + piece.offset;
                steps.get(other, place, Slice::new(Buffer::Output, theirs, piece.len));
            }
            stage.turn(&mut steps);
        }
        stage.end_turned(&mut steps);
    } else {
        steps.copy(own, Slice::new(Buffer::Output, at(&call, rank), call.count));
    }
    steps.build()
}

/// Where the block of `rank` begins.
const fn at(call: &Call, rank: Rank) -> usize {
    rank.index() * call.count
}
