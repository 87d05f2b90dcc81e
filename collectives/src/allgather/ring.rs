//! Ring: every block travels once around the ring.
//!
//! A rank sends its block to the next rank, and passes on each block that it gets from the previous
//! one, until it has all. Every rank sends the least possible, and only to a neighbour. The chain
//! of messages is as long as the ring.
//!
//! A rank that waits for room in its link has come further in the schedule than the next rank,
//! which takes the elements. A rank that waits for elements has come as far as the previous rank,
//! or further. So no ranks wait for each other in a circle, however long their blocks are. Only a
//! few chunks go around at a time, so ranks pass them on while they are in the cache.
//!
//! Steps: n-1. Sent by each rank: n-1 blocks. Pipelined in chunks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::chunk::part;
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "ring",
    needs: Needs::Links,
    pattern: Pattern::Ring,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::in_ring,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

/// Chunks of a block that go around together, as one message.
const TOGETHER: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size - 1, sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, rank, longest) = (plan.size(), plan.rank, blocks.longest());
    let member = plan.in_ring();
    let place = member.place;
    let (next, previous) = (ring::after(place, 1, size), ring::before(place, 1, size));
    let own = Slice::new(Buffer::Input, 0, blocks.len(rank));
    let result = |of| blocks.slice(Buffer::Output, of);
    // The block that arrives at this rank in a turn.
    let passing = |turn| match turn {
        0 => own,
        _ => result(member.order.at(ring::before(place, turn, size).index())),
    };
    // Two ranks pass nothing on.
    let at_once = if size > 2 { 1 } else { longest.div_ceil(plan.layout.channels()) };
    let round = at_once.max(TOGETHER * plan.chunk);
    let rounds = longest.div_ceil(round);
    let lanes = plan.lanes(rounds);
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes).in_order(&member.order);
    for index in 0..rounds {
        steps.lane(index % lanes);
        for turn in 1..size {
            steps.send(next, part(passing(turn - 1), index, round));
            steps.recv(previous, part(passing(turn), index, round));
        }
    }
    for index in 0..rounds {
        // The last step, because in place it waits until the sends of its source are done.
        let own = part(own, index, round);
        let result = part(result(rank), index, round);
        steps.lane(index % lanes).copy(own, result);
    }
    steps.build()
}
