//! Ring: partial sums travel once around the ring, from the rank after the root to the root. For
//! long messages.
//!
//! Each rank adds its input to the sums that arrive from the previous rank and sends them on, chunk
//! by chunk. It sends and receives the buffer at most once. With many chunks under way, the time
//! does not depend on the number of ranks. A reduce-scatter and a gather to the root would send
//! almost twice as much. A rank waits only for the rank before it to send and for the rank after it
//! to receive, and the root receives all.
//!
//! Steps: n-1. Sent by each rank but the root: the buffer once. Pipelined in chunks.
//!
//! Source: the pipelined chain of `broadcast`, in reverse.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Reduce,
    name: "ring",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::in_chain,
};

/// Partial sums that a rank keeps for a lane, and chunks in a row that take the same lane. A rank
/// makes the next sum while earlier ones leave.
const SUMS: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size - 1, sent: if size > 1 { call.count } else { 0 } }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let member = plan.in_chain_to_root();
    let (size, rank, root, count) = (plan.size(), member.place, member.root, plan.call.count);
    let lanes = plan.lanes(count.div_ceil(SUMS * plan.chunk));
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes).in_order(&member.order);
    let (next, previous) = (ring::after(rank, 1, size), ring::before(rank, 1, size));
    let is_first = |rank| rank == ring::after(root, 1, size);
    let inner = rank != root && !is_first(rank);
    let sum_len = if inner { count.min(plan.chunk) } else { 0 };
    let [arriving, leaving] = member.ring_forms(plan);
    let sums: Vec<Slice> = (0..SUMS * lanes).map(|_| steps.sums(sum_len, leaving)).collect();
    let form = if is_first(previous) { Form::Element } else { arriving };
    let own = Slice::new(Buffer::Input, 0, count);
    for (index, own) in chunks(own, plan.chunk).enumerate() {
        steps.lane(index / SUMS % lanes);
        let sum = sums[index % sums.len()];
        let sources = [Source::Wire(previous, form), Source::Local(own)];
        if rank == root {
            // Alone, the root has no other rank to wait for.
            let sources = if size > 1 { &sources[..] } else { &sources[1..] };
            steps.reduce(Slice { buffer: Buffer::Output, ..own }, sources);
        } else if inner {
            let sum = sum.take(own.len);
            steps.reduce(sum, &sources);
            steps.send(next, sum);
        } else {
            steps.send(next, own);
        }
    }
    steps.build()
}
