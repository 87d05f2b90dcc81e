//! Broadcast through the root's staging buffer: the root copies its buffer there and signals all
//! others. They copy the elements from there.
//!
//! The call works piece by piece. Pieces use the two halves of the staging buffer in turn. A rank
//! that signals piece n has read piece n-1, also across calls, so its place is free. Two ranks swap
//! staging buffers after each piece instead. In a chain every rank but the last copies the buffer
//! once more, so this is for long messages to several ranks.
//!
//! Steps: 1 for each piece. Sent by each rank: one signal for each piece, counted as one element.
//! All but the root copy the buffer from the root's staging buffer.
//!
//! Source: `linear`, through a staging buffer.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::rails;
use crate::schedule::{Builder, Schedule};
use crate::staging::{CHUNKS, Staging, input_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "staged",
    needs: Needs::Staging { piece_len },
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::always,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let steps = (layout.size() - 1).min(1);
    Stated { steps, sent: steps * (call.count + 1) }
}

fn moved(call: &Call, _: &Layout, _: usize) -> Moved {
    Moved { moved: call.count, summed: 0 }
}

/// Elements of a piece.
fn piece_len(call: &Call, _: usize, chunk: usize) -> usize {
    whole_lines(call, chunk.saturating_mul(CHUNKS).min(input_room(call)))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let result = Slice::new(Buffer::Output, 0, call.count);
    let own = Slice { buffer: Buffer::Input, ..result };
    if size == 1 {
        steps.copy(own, result);
        return steps.build();
    }
    let mut staging = Staging::new(plan, &mut steps);
    for piece in chunks(result, piece_len(&call, size, plan.chunk)) {
        let place = staging.here(0, piece.len);
        if rank == call.root {
            let own = Slice { buffer: Buffer::Input, ..piece };
            steps.copy(own, place);
            staging.signal_all(&mut steps);
            // The second copy finds the piece in cache.
            steps.copy(own, piece);
        } else {
            staging.signal_all(&mut steps);
            staging.wait(&mut steps, call.root);
            steps.get(call.root, place, piece);
        }
        for other in staging.others().filter(|other| *other != call.root) {
            staging.wait(&mut steps, other);
        }
        staging.next_piece(&mut steps);
    }
    staging.end_pieces(&mut steps);
    steps.build()
}
