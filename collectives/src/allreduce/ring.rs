//! Ring: partial sums travel once around the ring, then the results do.
//!
//! The buffer is cut into n blocks. Block b starts at rank b+1 and gathers every rank's input on
//! its way around to rank b, which finishes it (reduce-scatter); from there the result goes around
//! once more (allgather). Bandwidth-optimal; a message chain as long as two turns.
//!
//! Steps: 2(n-1). Sent by each rank: 2(n-1)/n of the buffer. Pipelined in chunks.
//!
//! Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
//! 2009.

use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::{block, chunks, part};
use crate::pattern::ring;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllReduce, name: "ring", schedule, stated };

/// Chunks of a block that are on their way at once.
const IN_FLIGHT: usize = 4;

fn stated(call: &Call, size: usize) -> Stated {
    Stated { steps: 2 * (size - 1), sent: 2 * call.count / size * (size - 1) }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    if size == 1 {
        let own = Slice::new(Buffer::Input, 0, count);
        steps.reduce(Slice::new(Buffer::Output, 0, count), &[Source::Local(own)]);
        return steps.build();
    }
    let longest = block(Buffer::Input, count, size, 0).len;
    let round = longest.min(IN_FLIGHT * plan.chunk);
    // One turn's partial sums leave while the next turn's arrive.
    let scratch = [steps.scratch(round), steps.scratch(round)];
    for index in 0..longest.div_ceil(round.max(1)) {
        // The part of a block that goes around in this round, for the block that ends its way at
        // this rank in `turn` turns.
        let passing = |buffer, turn| {
            let block = block(buffer, count, size, ring::before(rank, turn, size).index());
            part(block, index, round)
        };
        one_round(&mut steps, plan, passing, scratch);
    }
    steps.build()
}

fn one_round(
    steps: &mut Builder,
    plan: &Plan<'_>,
    passing: impl Fn(Buffer, usize) -> Slice,
    scratch: [Slice; 2],
) {
    let (size, rank) = (plan.size(), plan.rank);
    let (next, previous) = (ring::after(rank, 1, size), ring::before(rank, 1, size));
    for own in chunks(passing(Buffer::Input, 1), plan.chunk) {
        steps.send(next, own);
    }
    for turn in (2..size).chain([0]) {
        // Only the first sender has nothing but its input.
        let first = turn == 2 || size == 2;
        let form = if first { Form::Element } else { Form::Accumulator };
        let own = passing(Buffer::Input, turn);
        let sum = match turn {
            0 => passing(Buffer::Output, 0),
            _ => scratch[turn % 2].take(own.len),
        };
        for (own, sum) in chunks(own, plan.chunk).zip(chunks(sum, plan.chunk)) {
            steps.reduce(sum, &[Source::Wire(previous, form), Source::Local(own)]);
            steps.send(next, sum);
        }
    }
    for turn in 1..size {
        for result in chunks(passing(Buffer::Output, turn), plan.chunk) {
            steps.recv(previous, result);
            if turn + 1 < size {
                steps.send(next, result);
            }
        }
    }
}
