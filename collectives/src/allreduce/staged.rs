//! All-reduce through staging buffers: each rank combines one block straight from the others'
//! staging buffers, and they copy the result from its own. Piece by piece:
//!
//! 1. Each rank copies the others' blocks to its staging buffer and signals.
//! 2. Rank r waits for all signals. It then combines block r in rank order, from its own input and
//!    all staging buffers, into its staging buffer and its output, and signals.
//! 3. Each rank waits for the signal of each other rank, and then copies that rank's block to its
//!    output.
//!
//! Pieces use the two halves of the staging buffer in turn, so a rank copies the next piece before
//! it waits for this one. A rank writes to a half only after signals of all ranks that were using
//! it, even across calls. The results of a piece are in the other half than its inputs. So after a
//! call of one piece, the next call begins with the same half, which is in cache. Short floats are
//! rounded once. Blocks begin at cache lines, so no line has two writers.
//!
//! Steps: 2 for the first piece, and one more for each further piece. Sent by each rank: 2 signals
//! for each piece, counted as one element each. It reads (n-1)/n of the buffer from others' staging
//! buffers to combine it, and copies as much out of them.
//!
//! Source: `two_shot`, through staging buffers.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block_of_grains, chunks};
use crate::rails;
use crate::schedule::{Builder, Schedule, Source};
use crate::staging::{CHUNKS, Staging, grain, input_room, result_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "staged",
    needs: Needs::Staging { piece_len },
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::always,
};

/// Parts of a chunk. Sources and result of a part fit the first or second cache together.
const PARTS: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    let steps = 2 * others.min(1);
    Stated { steps, sent: call.count / size * others + steps }
}

/// The others' blocks go through a rank's staging buffer, and all results come out of staging
/// buffers.
fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    let moved = 2 * call.count - call.count / layout.size();
    Moved { moved, summed: call.count }
}

/// Elements of a piece: the results of a rank's block must fit its staging buffer.
pub(super) fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul(CHUNKS);
    whole_lines(call, wanted.min(input_room(call)).min(result_room(call) * size))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, call) = (plan.size(), plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let whole = Slice::new(Buffer::Input, 0, call.count);
    if size == 1 {
        steps.reduce(Slice { buffer: Buffer::Output, ..whole }, &[Source::Local(whole)]);
        return steps.build();
    }
    let staging = Staging::new(plan, &mut steps);
    let pieces: Vec<Slice> = chunks(whole, piece_len(&call, size, plan.chunk)).collect();
    for index in 0..=pieces.len() {
        let last = index.checked_sub(1).map(|last| (last, pieces[last]));
        if let Some((last, piece)) = last {
            staging.wait_all(&mut steps);
            combine(plan, &mut steps, &staging, last, piece);
            staging.signal_all(&mut steps);
        }
        if let Some(piece) = pieces.get(index) {
            for other in staging.others() {
                let block = block(&call, *piece, size, other);
                steps.copy(block, staging.place(index, block.offset - piece.offset, block.len));
            }
            staging.signal_all(&mut steps);
        }
        if let Some((last, piece)) = last {
            for other in staging.others() {
                let block = block(&call, piece, size, other);
                staging.wait(&mut steps, other);
                let result = Slice { buffer: Buffer::Output, ..block };
                steps.get(other, staging.result(last, block.len), result);
            }
        }
    }
    staging.end(&mut steps, pieces.len().saturating_sub(1));
    steps.build()
}

/// The block of `piece` that `rank` combines.
fn block(call: &Call, piece: Slice, size: usize, rank: Rank) -> Slice {
    let block = block_of_grains(piece.buffer, piece.len, size, rank.index(), grain(call));
    Slice { offset: piece.offset + block.offset, ..block }
}

/// Combines this rank's block of piece number `index`.
fn combine(
    plan: &ScheduleParams<'_>,
    steps: &mut Builder,
    staging: &Staging,
    index: usize,
    piece: Slice,
) {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let block = block(&call, piece, size, rank);
    let result = staging.result(index, block.len);
    for own in chunks(block, plan.chunk.div_ceil(PARTS).next_multiple_of(grain(&call))) {
        let theirs = staging.place(index, own.offset - piece.offset, own.len);
        let part = result.skip(own.offset - block.offset).take(own.len);
        staging.combine(steps, part, own, |_| theirs);
        steps.copy(part, Slice { buffer: Buffer::Output, ..own });
    }
}
