//! Pipelined chain: the root sends the buffer to the rank after it, which passes it on chunk by
//! chunk. For long messages.
//!
//! Each rank sends the buffer at most once. With many chunks under way, the time does not depend on
//! the number of ranks. A rank waits only for the rank before it to send and for the rank after it
//! to receive, and the chain has an end.
//!
//! Steps: n-1. Sent by each rank but the last: the buffer once. Pipelined in chunks.
//!
//! Source: Watts and van de Geijn, "A pipelined broadcast for multidimensional meshes", 1995.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{chunks, part};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "chain",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::in_chain,
};

/// Consecutive chunks that take the same lane.
const TOGETHER: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size - 1, sent: if size > 1 { call.count } else { 0 } }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let member = plan.in_chain_from_root();
    let (size, rank, root) = (plan.size(), member.place, member.root);
    let (next, previous) = (ring::after(rank, 1, size), ring::before(rank, 1, size));
    let output = Slice::new(Buffer::Output, 0, plan.call.count);
    let own = if rank == root { Slice { buffer: Buffer::Input, ..output } } else { output };
    let rounds = plan.call.count.div_ceil(TOGETHER * plan.chunk);
    let lanes = plan.lanes(rounds);
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes).in_order(&member.order);
    for (index, piece) in chunks(own, plan.chunk).enumerate() {
        steps.lane(index / TOGETHER % lanes);
        if rank != root {
            steps.recv(previous, piece);
        }
        if next != root {
            steps.send(next, piece);
        }
    }
    if rank == root {
        for index in 0..rounds {
            // The last step, because in place it waits until the sends of its source are done.
            let [own, output] = [own, output].map(|all| part(all, index, TOGETHER * plan.chunk));
            steps.lane(index % lanes).copy(own, output);
        }
    }
    steps.build()
}
