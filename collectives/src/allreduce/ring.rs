//! Ring: partial sums travel once around the ring, then the results do.
//!
//! The buffer is cut into n blocks. Block b starts at rank b+1 and collects every rank's input on
//! its way around to rank b, which finishes it (reduce-scatter). From there the result goes around
//! once more (all-gather). Every rank sends the least possible. The chain of messages is twice as
//! long as the ring.
//!
//! Steps: 2(n-1). Sent by each rank: 2(n-1)/n of the buffer. Pipelined in chunks.
//!
//! Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", 2009.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block, blocks_of, chunks, part};
use crate::flat::{Flat, Participant, Reducer};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "ring",
    needs: Needs::Links,
    pattern: Pattern::Ring,
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: rails::in_ring,
};

pub(super) const FLAT: Flat = Flat {
    algorithm: &ALGORITHM,
    section,
    prepare: |steps, &Participant { rank, size, chunk, longest, form, .. }| {
        let longest = block(Buffer::Input, longest, size, 0).len;
        Box::new(Ring::new(steps, rank, size, chunk, longest, [form; 2]))
    },
};

/// Chunks of a block that are under way at once.
const IN_FLIGHT: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: 2 * (size - 1), sent: 2 * call.count / size * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, count) = (plan.size(), plan.call.count);
    let longest = block(Buffer::Input, count, size, 0).len;
    let round = longest.clamp(1, IN_FLIGHT * plan.chunk);
    let rounds = longest.div_ceil(round);
    let lanes = plan.lanes(rounds);
    let member = plan.in_ring();
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes).in_order(&member.order);
    let forms = member.ring_forms(plan);
    let mut ring = || Ring::new(&mut steps, member.place, size, plan.chunk, round, forms);
    let rings: Vec<Ring> = (0..lanes).map(|_| ring()).collect();
    for index in 0..rounds {
        let (ring, steps) = (&rings[index % lanes], steps.lane(index % lanes));
        let passing = |buffer, at| part(block(buffer, count, size, at), index, round);
        let (own, result) = (|at| passing(Buffer::Input, at), |at| passing(Buffer::Output, at));
        ring.around(steps, own, result);
    }
    steps.build()
}

/// Elements that go around together.
const fn section(size: usize, chunk: usize) -> usize {
    size * IN_FLIGHT * chunk
}

/// One rank of a ring.
struct Ring {
    rank: Rank,
    size: usize,
    chunk: usize,
    /// The form of partial sums from the previous rank.
    arriving: Form,
    /// Partial sums of two turns: one turn's leave while the next turn's arrive.
    sums: [Slice; 2],
}

impl Ring {
    /// A rank for rounds of `longest` elements of each block. Partial sums arrive and leave in the
    /// two forms.
    fn new(
        steps: &mut Builder,
        rank: Rank,
        size: usize,
        chunk: usize,
        longest: usize,
        [arriving, leaving]: [Form; 2],
    ) -> Self {
        let sums = [(); 2].map(|()| steps.sums(longest, leaving));
        Self { rank, size, chunk, arriving, sums }
    }

    /// Writes the steps of one round: partial sums over `own` of every block go around, then
    /// `result`. Both functions map the number of a block to its slice.
    fn around(
        &self,
        steps: &mut Builder,
        own: impl Fn(usize) -> Slice,
        result: impl Fn(usize) -> Slice,
    ) {
        let Self { rank, size, chunk, arriving, .. } = *self;
        // The block that has `turn` turns to go until it ends at this rank.
        let passing = |turn| ring::before(rank, turn, size).index();
        if size == 1 {
            return steps.reduce(result(0), &[Source::Local(own(0))]);
        }
        let (next, previous) = (ring::after(rank, 1, size), ring::before(rank, 1, size));
        let first = own(passing(1));
        for part in chunks(first, chunk) {
            steps.send(next, part);
        }
        for turn in (2..size).chain([0]) {
            // Only the first sender sends its bare input.
            let is_first = turn == 2 || size == 2;
            let form = if is_first { Form::of(first.buffer) } else { arriving };
            let own = own(passing(turn));
            let sum = match turn {
                0 => result(passing(0)),
                _ => self.sums[turn % 2].take(own.len),
            };
            for (own, sum) in chunks(own, chunk).zip(chunks(sum, chunk)) {
                steps.reduce(sum, &[Source::Wire(previous, form), Source::Local(own)]);
                steps.send(next, sum);
            }
        }
        for turn in 1..size {
            for result in chunks(result(passing(turn)), chunk) {
                steps.recv(previous, result);
                if turn + 1 < size {
                    steps.send(next, result);
                }
            }
        }
    }
}

impl Reducer for Ring {
    fn piece(&self, steps: &mut Builder, own: Slice, result: Slice) {
        let block = |all, at| blocks_of(all, self.size, at..at + 1);
        self.around(steps, |at| block(own, at), |at| block(result, at));
    }
}
