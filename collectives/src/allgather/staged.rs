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

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, ScheduleParams, Stated, Way};
use crate::chunk::chunks;
use crate::schedule::{Builder, Schedule};
use crate::staging::{CHUNKS, Staging, input_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "staged",
    needs: Needs::Staging { piece_len },
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

/// Elements of a piece: all staging buffers together have twice as many chunks as those of other
/// algorithms, or one each.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((2 * CHUNKS / size).max(1));
    whole_lines(call, wanted.min(input_room(call)))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, call.count);
    let pieces: Vec<Slice> = chunks(own, piece_len(&call, size, plan.chunk)).collect();
    if size > 1 && !pieces.is_empty() {
        let mut staging = Staging::new(plan, &mut steps);
        for piece in pieces {
            let place = staging.here(0, piece.len);
            steps.copy(piece, place);
            staging.signal_all(&mut steps);
            // The second copy finds the piece in cache.
            steps
                .copy(piece, Slice::new(Buffer::Output, at(&call, rank) + piece.offset, piece.len));
            for other in staging.others() {
                staging.wait(&mut steps, other);
                let theirs = at(&call, other) + piece.offset;
                steps.get(other, place, Slice::new(Buffer::Output, theirs, piece.len));
            }
            staging.next_piece(&mut steps);
        }
        staging.end_pieces(&mut steps);
    } else {
        steps.copy(own, Slice::new(Buffer::Output, at(&call, rank), call.count));
    }
    steps.build()
}

/// The place in the output where the block of `rank` begins.
const fn at(call: &Call, rank: Rank) -> usize {
    rank.index() * call.count
}
