//! Through stages: every rank combines its block straight from the others' stages, and they take
//! the result from its own. Piece by piece:
//!
//! 1. Everyone copies the others' blocks to its stage, and tells everyone so.
//! 2. Rank r, once it has heard so of all, combines block r in rank order, from its own input and
//!    everyone's stage, to its stage and its output, and tells everyone.
//! 3. Everyone, once it has heard of a rank, copies that rank's block to its output.
//!
//! A piece uses one half of the stage and the next the other, so that it is copied there before
//! anyone waits for the one before. A half is written again only after all have been heard of that
//! are done with what was there before, be it in another call. Results are in the half that the
//! piece is not in: so a call of one piece leaves to the next the half that it began with, which is
//! in cache. Short floats are rounded once. Blocks begin at cache lines, so no line has two
//! writers.
//!
//! Steps: 2, of one element each, and one more for each further piece. Sent by each rank: 2 tells
//! for each piece; read from others' stages to be combined: (n-1)/n of the buffer, and as
//! much to be taken.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::chunk::{block_of_grains, chunks};
use crate::schedule::{Builder, Schedule, Source};
use crate::stage::{CHUNKS, Stage, grain, input_room, result_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "staged",
    needs: Needs::Stage { piece_len },
    way: Way::Direct,
    schedule,
    stated,
    moved,
    messages: |messages| messages.all_signal(),
};

/// Parts of a chunk: sources and result of a part are together in the first or second cache.
const PARTS: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    let steps = 2 * others.min(1);
    Stated { steps, sent: call.count / size * others + steps }
}

/// Others' blocks, and in the end everyone's, go through a stage.
fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    let moved = 2 * call.count - call.count / layout.size();
    Moved { moved, summed: call.count }
}

/// Each rank has the results of its block in its stage.
pub(super) fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul(CHUNKS);
    whole_lines(call, wanted.min(input_room(call)).min(result_room(call) * size))
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, call) = (plan.size(), plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let whole = Slice::new(Buffer::Input, 0, call.count);
    if size == 1 {
        steps.reduce(Slice { buffer: Buffer::Output, ..whole }, &[Source::Local(whole)]);
        return steps.build();
    }
    let stage = Stage::new(plan, &mut steps);
    let pieces: Vec<Slice> = chunks(whole, piece_len(&call, size, plan.chunk)).collect();
    for index in 0..=pieces.len() {
        let last = index.checked_sub(1).map(|last| (last, pieces[last]));
        if let Some((last, piece)) = last {
            stage.hear_all(&mut steps);
            combine(plan, &mut steps, &stage, last, piece);
            stage.tell_all(&mut steps);
        }
        if let Some(piece) = pieces.get(index) {
            for other in stage.others() {
                let block = block(&call, *piece, size, other);
                steps.copy(block, stage.place(index, block.offset - piece.offset, block.len));
            }
            stage.tell_all(&mut steps);
        }
        if let Some((last, piece)) = last {
            for other in stage.others() {
                let block = block(&call, piece, size, other);
                stage.hear(&mut steps, other);
                let result = Slice { buffer: Buffer::Output, ..block };
                steps.get(other, stage.result(last, block.len), result);
            }
        }
    }
    stage.end(&mut steps, pieces.len().saturating_sub(1));
    steps.build()
}

/// The block of `piece` that `rank` combines.
fn block(call: &Call, piece: Slice, size: usize, rank: Rank) -> Slice {
    let block = block_of_grains(piece.buffer, piece.len, size, rank.index(), grain(call));
    Slice { offset: piece.offset + block.offset, ..block }
}

/// Combines this rank's block of piece number `index`.
fn combine(plan: &Plan<'_>, steps: &mut Builder, stage: &Stage, index: usize, piece: Slice) {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let block = block(&call, piece, size, rank);
    let result = stage.result(index, block.len);
    for own in chunks(block, plan.chunk.div_ceil(PARTS).next_multiple_of(grain(&call))) {
        let theirs = stage.place(index, own.offset - piece.offset, own.len);
        let part = result.skip(own.offset - block.offset).take(own.len);
        stage.combine(steps, part, own, |_| theirs);
        steps.copy(part, Slice { buffer: Buffer::Output, ..own });
    }
}
