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

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, ScheduleParams, Stated, Way};
use crate::chunk::chunks;
use crate::schedule::{Builder, Schedule, Source};
use crate::staging::{CHUNKS, Staging, block_place, block_room, whole_lines};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "staged",
    needs: Needs::Staging { piece_len },
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

/// Elements of a piece: the blocks of all ranks are side by side.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let wanted = chunk.saturating_mul((CHUNKS / size).max(1));
    whole_lines(call, wanted.min(block_room(call, size)))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
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
    let mut staging = Staging::new(plan, &mut steps);
    let each = piece_len(&call, size, plan.chunk);
    let pieces: Vec<Slice> = chunks(own, each).collect();
    for result in pieces {
        let place =
            |of: Rank, reader: Rank| staging.here(block_place(size, of, reader) * each, result.len);
        for other in staging.others() {
            steps.copy(input(other, result), place(rank, other));
        }
        staging.signal_all(&mut steps);
        staging.wait_all(&mut steps);
        staging.combine(&mut steps, result, input(rank, result), |of| place(of, rank));
        staging.next_piece(&mut steps);
    }
    staging.end_pieces(&mut steps);
    steps.build()
}
