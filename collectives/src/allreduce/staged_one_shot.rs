//! One shot through stages: everyone copies its input to its stage, tells everyone so, and combines
//! all inputs straight from the stages.
//!
//! A copy for all instead of one for each, and one turn of every rank: for messages for which that
//! counts, on ranks that share CPUs. All ranks combine in rank order, in one pass, so all have the
//! same bits. Piece by piece, in turn in two halves of the stage: who tells that a piece is there
//! has combined all before the piece before it, be it in another call, so that its place is free.
//! Two ranks trade stages after each piece instead.
//!
//! Steps: 1 for each piece, of one element. Sent by each rank: a tell for each piece; read from
//! others' stages: n-1 times the buffer.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use super::staged::piece_len;
use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::chunk::chunks;
use crate::schedule::{Builder, Schedule, Source};
use crate::stage::Stage;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "staged_one_shot",
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
    Moved { moved: call.count, summed: call.count * layout.size() }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, call) = (plan.size(), plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let whole = Slice::new(Buffer::Input, 0, call.count);
    if size == 1 {
        steps.reduce(Slice { buffer: Buffer::Output, ..whole }, &[Source::Local(whole)]);
        return steps.build();
    }
    let mut stage = Stage::new(plan, &mut steps);
    let pieces: Vec<Slice> = chunks(whole, piece_len(&call, size, plan.chunk)).collect();
    for piece in pieces {
        let place = stage.here(0, piece.len);
        steps.copy(piece, place);
        stage.tell_all(&mut steps);
        stage.hear_all(&mut steps);
        stage.combine(&mut steps, Slice { buffer: Buffer::Output, ..piece }, piece, |_| place);
        stage.turn(&mut steps);
    }
    stage.end_turned(&mut steps);
    steps.build()
}
