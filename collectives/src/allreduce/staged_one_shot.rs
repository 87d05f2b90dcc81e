//! One shot through staging buffers: each rank copies its input to its staging buffer and signals.
//! It then combines all inputs straight from the staging buffers.
//!
//! A rank makes one copy for all others instead of one for each, and every rank gets the CPU once.
//! So this is for short messages, on ranks that share CPUs. All ranks combine in rank order, in one
//! pass, so all have the same bits.
//!
//! The call works piece by piece. Pieces use the two halves of the staging buffer in turn.
//! Signalling piece n means that the sender has finished with piece n-2, even across calls, so its
//! place is free. Two ranks swap staging buffers after each piece instead.
//!
//! Steps: 1 for each piece. Sent by each rank: one signal for each piece, counted as one element.
//! It reads n-1 times the buffer from others' staging buffers.
//!
//! Source: `one_shot`, through staging buffers.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use super::staged::piece_len;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::rails;
use crate::schedule::{Builder, Schedule, Source};
use crate::staging::Staging;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "staged_one_shot",
    needs: Needs::Staging { piece_len },
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::always,
};

fn stated(_: &Call, layout: &Layout) -> Stated {
    let steps = (layout.size() - 1).min(1);
    Stated { steps, sent: steps }
}

fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    Moved { moved: call.count, summed: call.count * layout.size() }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, call) = (plan.size(), plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let whole = Slice::new(Buffer::Input, 0, call.count);
    if size == 1 {
        steps.reduce(Slice { buffer: Buffer::Output, ..whole }, &[Source::Local(whole)]);
        return steps.build();
    }
    let mut staging = Staging::new(plan, &mut steps);
    let pieces: Vec<Slice> = chunks(whole, piece_len(&call, size, plan.chunk)).collect();
    for piece in pieces {
        let place = staging.here(0, piece.len);
        steps.copy(piece, place);
        staging.signal_all(&mut steps);
        staging.wait_all(&mut steps);
        staging.combine(&mut steps, Slice { buffer: Buffer::Output, ..piece }, piece, |_| place);
        staging.next_piece(&mut steps);
    }
    staging.end_pieces(&mut steps);
    steps.build()
}
