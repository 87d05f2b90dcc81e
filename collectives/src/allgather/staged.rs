//! Through stages: everyone copies its block to its stage and tells everyone so, and takes what it
//! has heard of from the others' stages. Piece by piece, in turn in two halves of the stage: who
//! tells that a piece is there has taken all before the piece before it, be it in another call, so
//! that its place is free.
//!
//! Steps: 1 for each piece, of one element. Sent by each rank: n-1 tokens for each piece; taken
//! from others' stages: n-1 blocks.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::chunks;
use crate::schedule::{Builder, Schedule};
use crate::stage::{Stage, piece_len};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllGather, name: "staged", schedule, stated };

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    Stated { steps: others.min(1), sent: call.count * others + others }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, call.count);
    let pieces: Vec<Slice> = chunks(own, piece_len(&call, size, plan.chunk)).collect();
    if size > 1 && !pieces.is_empty() {
        let stage = Stage::new(plan, &mut steps);
        for index in 0..=pieces.len() {
            if let Some(last) = index.checked_sub(1) {
                let Slice { offset, len, .. } = pieces[last];
                for other in stage.others() {
                    stage.hear(&mut steps, other);
                    let theirs = Slice::new(Buffer::Output, at(&call, other) + offset, len);
                    steps.get(other, stage.place(last, 0, len), theirs);
                }
            }
            if let Some(piece) = pieces.get(index) {
                steps.copy(*piece, stage.place(index, 0, piece.len));
                stage.tell_all(&mut steps);
            }
        }
        stage.end(&mut steps, pieces.len());
    }
    steps.copy(own, Slice::new(Buffer::Output, at(&call, rank), call.count));
    steps.build()
}

/// Where the block of `rank` begins.
const fn at(call: &Call, rank: Rank) -> usize {
    rank.index() * call.count
}
