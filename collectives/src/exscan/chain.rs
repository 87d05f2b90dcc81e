//! Pipelined chain: each rank keeps the sum that arrives from the rank before it, adds its input,
//! and passes that on, chunk by chunk. For long messages.
//!
//! Steps: n-1. Sent by each rank but the last: the buffer once. Pipelined in chunks.
//!
//! Source: `chain` of scan.

use alloc::vec::Vec;

use ringfold_types::{Buffer, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams};
use crate::chunk::chunks;
use crate::rails;
use crate::scan::chain::{SUMS, arriving, next, stated};
use crate::schedule::{Builder, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Exscan,
    name: "chain",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::in_rank_order,
};

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank.index(), plan.call.count);
    let lanes = plan.lanes(count.div_ceil(SUMS * plan.chunk));
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes);
    let is_last = rank + 1 == size;
    let is_inner = rank > 0 && !is_last;
    let sum_len = if is_inner { count.min(plan.chunk) } else { 0 };
    let before: Vec<Slice> = (0..lanes).map(|_| steps.scratch(sum_len)).collect();
    let sums: Vec<Slice> = if is_inner {
        let leaving = plan.sums_form(plan.rank, next(plan));
        (0..SUMS * lanes).map(|_| steps.sums(sum_len, leaving)).collect()
    } else {
        Vec::new()
    };
    for (index, own) in chunks(Slice::new(Buffer::Input, 0, count), plan.chunk).enumerate() {
        let lane = index / SUMS % lanes;
        steps.lane(lane);
        let result = Slice { buffer: Buffer::Output, ..own };
        if is_inner {
            let (before, sum) =
                (before[lane].take(own.len), sums[index % sums.len()].take(own.len));
            steps.reduce(before, &[arriving(plan)]);
            steps.reduce(sum, &[before, own].map(Source::Local));
            steps.send(next(plan), sum);
            steps.reduce(result, &[Source::Local(before)]);
        } else if rank > 0 {
            steps.reduce(result, &[arriving(plan)]);
        } else if !is_last {
            steps.send(Rank(1), own);
        }
    }
    steps.build()
}
