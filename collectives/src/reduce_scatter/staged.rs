//! Through stages: everyone copies the others' blocks to its stage, tells everyone so, and combines
//! its own block straight from the stages.
//!
//! All ranks combine in rank order, in one pass: short floats are rounded once. Piece by piece, in
//! turn in two halves of the stage: who tells that a piece is there has combined all before the
//! piece before it, be it in another call, so that its place is free. Two ranks trade stages after
//! each piece instead.
//!
//! Steps: 1 for each piece, of one element. Sent by each rank: a tell for each piece; read from
//! others' stages: n-1 blocks.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::chunk::chunks;
use crate::schedule::{Builder, Schedule, Source};
use crate::stage::{CHUNKS, Stage, grain, input_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "staged",
    needs: Needs::Stage { piece_len },
    way: Way::Direct,
    schedule,
    stated,
    moved,
    messages: |messages| messages.all_signal(),
};

fn stated(_: &Call, layout: &Layout) -> Stated {
    let steps = (layout.size() - 1).min(1);
    Stated { steps, sent: steps }
}

fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    let size = layout.size();
    Moved { moved: call.count * (size - 1), summed: call.count * size }
}

/// Blocks of all ranks lie side by side, each from a line on.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((CHUNKS / size).max(1));
    let room = input_room(call) / (size * grain(call)) * grain(call);
    whole_lines(call, wanted.min(room))
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Output, 0, call.count);
    let input = |of: Rank, result: Slice| {
        Slice::new(Buffer::Input, of.index() * call.count + result.offset, result.len)
    };
    if size == 1 {
        steps.reduce(own, &[Source::Local(input(rank, own))]);
        return steps.build();
    }
    let mut stage = Stage::new(plan, &mut steps);
    let each = piece_len(&call, size, plan.chunk);
    let pieces: Vec<Slice> = chunks(own, each).collect();
    for result in pieces {
        // By how far the reader is from the writer: with two ranks always the same.
        let place = |of: Rank, reader: Rank| {
            let distance = (reader.index() + size - of.index()) % size;
            stage.here((distance - 1) * each, result.len)
        };
        for other in stage.others() {
            steps.copy(input(other, result), place(rank, other));
        }
        stage.tell_all(&mut steps);
        stage.hear_all(&mut steps);
        stage.combine(&mut steps, result, input(rank, result), |of| place(of, rank));
        stage.turn(&mut steps);
    }
    stage.end_turned(&mut steps);
    steps.build()
}
