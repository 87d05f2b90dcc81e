//! Direct: everyone sends its block to everyone, each beginning with the rank after it.
//!
//! All sends of a piece are posted before anything is received. When the rank that is furthest
//! behind posts them, the others have taken all of the piece before; so they find room, or, if they
//! are too many to be posted, links that accept them by themselves.
//!
//! Steps: 1. Sent by each rank: n-1 blocks. For messages so short that only the number of steps
//! counts, and for ranks that are all equally near.

use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::chunks;
use crate::pattern::ring;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllGather, name: "direct", schedule, stated };

fn stated(call: &Call, size: usize) -> Stated {
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, count);
    let piece = if size <= POSTED_MAX { count.max(1) } else { plan.eager() };
    for leaving in chunks(own, piece) {
        for distance in 1..size {
            steps.send(ring::after(rank, distance, size), leaving);
        }
        for distance in 1..size {
            let from = ring::before(rank, distance, size);
            let offset = from.index() * count + leaving.offset;
            steps.recv(from, Slice { buffer: Buffer::Output, offset, ..leaving });
        }
    }
    // Last, since in place it waits until its source has left.
    steps.copy(own, Slice::new(Buffer::Output, rank.index() * count, count));
    steps.build()
}
