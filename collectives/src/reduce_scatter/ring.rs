//! Ring: partial sums travel once around the ring.
//!
//! Block b starts at rank b+1 and collects every rank's input on its way around to rank b, which
//! finishes it. Every rank sends the least possible, and only to a neighbour. The chain of messages
//! is as long as the ring. Each block is summed in the order of its way.
//!
//! A few chunks go around at a time. In each turn a rank waits for the message that the previous
//! rank posted in the turn before. It also waits for its sums of two turns ago to leave, which the
//! next rank takes in the turn before. So no ranks wait in a circle.
//!
//! Steps: n-1. Sent by each rank: n-1 blocks. Pipelined in chunks.
//!
//! Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", 2009.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::chunk::{chunks, part};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "ring",
    needs: Needs::Links,
    pattern: Pattern::Ring,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::in_ring,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

/// Chunks of a block that go around together.
const IN_FLIGHT: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size - 1, sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, longest) = (plan.size(), blocks.longest());
    let member = plan.in_ring();
    let place = member.place;
    let output = Slice::new(Buffer::Output, 0, blocks.len(plan.rank));
    let input = |of| blocks.slice(Buffer::Input, of);
    let round = longest.clamp(1, IN_FLIGHT * plan.chunk);
    let rounds = longest.div_ceil(round);
    let lanes = plan.lanes(rounds);
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes).in_order(&member.order);
    if size == 1 {
        steps.reduce(output, &[Source::Local(input(plan.rank))]);
        return steps.build();
    }
    // One turn's partial sums leave while the next turn's arrive.
    let [arriving, leaving] = member.ring_forms(plan);
    let mut two = || [(); 2].map(|()| steps.sums(round, leaving));
    let sums: Vec<[Slice; 2]> = (0..lanes).map(|_| two()).collect();
    let (next, previous) = (ring::after(place, 1, size), ring::before(place, 1, size));
    for index in 0..rounds {
        let sums = sums[index % lanes];
        steps.lane(index % lanes);
        // The part of this rank's input for the block that has `turn` turns to go.
        let passing = |turn| {
            let of = member.order.at(ring::before(place, turn, size).index());
            part(input(of), index, round)
        };
        for own in chunks(passing(1), plan.chunk) {
            steps.send(next, own);
        }
        for turn in (2..size).chain([0]) {
            // Only the first sender sends its bare input.
            let first = turn == 2 || size == 2;
            let form = if first { Form::Element } else { arriving };
            let own = passing(turn);
            let sum = match turn {
                0 => part(output, index, round),
                _ => sums[turn % 2].take(own.len),
            };
            for (own, sum) in chunks(own, plan.chunk).zip(chunks(sum, plan.chunk)) {
                steps.reduce(sum, &[Source::Wire(previous, form), Source::Local(own)]);
                if turn > 0 {
                    steps.send(next, sum);
                }
            }
        }
    }
    steps.build()
}
