//! Pipelined chain: each rank adds its input to the sum that arrives from the rank before it, and
//! passes the result on, chunk by chunk. For long messages.
//!
//! Each rank sends the buffer at most once. With many chunks under way, the time does not depend on
//! the number of ranks. A rank waits only for the rank before it to send and for the rank after it
//! to receive, and the chain has an end.
//!
//! Steps: n-1. Sent by each rank but the last: the buffer once. Pipelined in chunks.
//!
//! Source: the linear pipeline of Sanders and Traeff, "Parallel prefix (scan) algorithms for MPI",
//! 2006.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{chunks, part};
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Scan,
    name: "chain",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::in_rank_order,
};

/// Partial sums that a rank keeps for a lane, and chunks in a row that take the same lane. A rank
/// makes the next sum while earlier ones leave.
pub(crate) const SUMS: usize = 4;

pub(crate) fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size - 1, sent: if size > 1 { call.count } else { 0 } }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank.index(), plan.call.count);
    let rounds = count.div_ceil(SUMS * plan.chunk);
    let lanes = plan.lanes(rounds);
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes);
    let (is_first, is_last) = (rank == 0, rank + 1 == size);
    let all = Slice::new(Buffer::Input, 0, count);
    let result = |own: Slice| Slice { buffer: Buffer::Output, ..own };
    if is_first {
        for (index, own) in chunks(all, plan.chunk).enumerate().filter(|_| !is_last) {
            steps.lane(index / SUMS % lanes).send(Rank(1), own);
        }
        for index in 0..rounds {
            // The last step, because in place it waits until the sends of its source are done.
            let own = part(all, index, SUMS * plan.chunk);
            steps.lane(index % lanes).reduce(result(own), &[Source::Local(own)]);
        }
        return steps.build();
    }
    let arriving = arriving(plan);
    let leaving = if is_last { Form::Element } else { plan.sums_form(plan.rank, next(plan)) };
    let sum_len = if is_last { 0 } else { count.min(plan.chunk) };
    let sums: Vec<Slice> = (0..SUMS * lanes).map(|_| steps.sums(sum_len, leaving)).collect();
    for (index, own) in chunks(all, plan.chunk).enumerate() {
        steps.lane(index / SUMS % lanes);
        let sources = [arriving, Source::Local(own)];
        if is_last {
            steps.reduce(result(own), &sources);
            continue;
        }
        let sum = sums[index % sums.len()].take(own.len);
        steps.reduce(sum, &sources);
        steps.send(next(plan), sum);
        steps.reduce(result(own), &[Source::Local(sum)]);
    }
    steps.build()
}

/// The rank after this one.
pub(crate) fn next(plan: &ScheduleParams<'_>) -> Rank {
    Rank::at(plan.rank.index() + 1)
}

/// The sums that arrive from the rank before this one.
pub(crate) fn arriving(plan: &ScheduleParams<'_>) -> Source {
    let from = Rank::at(plan.rank.index() - 1);
    let form = if from == Rank(0) { Form::Element } else { plan.sums_form(from, plan.rank) };
    Source::Wire(from, form)
}
