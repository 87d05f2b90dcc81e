//! Direct: each rank sends its block to every other, and begins with the rank after it. For short
//! messages, where only the number of steps counts, and for ranks that are all equally near.
//!
//! If links accept each block ahead of the receiver, a rank posts all sends before it receives.
//! Otherwise it posts as many as it may, to the nearest ranks, and then receives from the nearest
//! on the other side. Before the slowest rank posts the next sends, all others have received its
//! earlier ones. So no ranks wait for each other in a circle.
//!
//! Steps: 1, while a rank can post all sends. Sent by each rank: n-1 blocks.
//!
//! Source: the posted sends of Thakur, Rabenseifner and Gropp, "Optimization of collective
//! communication operations in MPICH", 2005.

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::blocks::Blocks;
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "direct",
    needs: Needs::Links,
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::among_all,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    in_blocks(plan, &plan.equal_blocks())
}

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    let (size, rank) = (plan.size(), plan.rank);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, blocks.len(rank));
    let whole = |rank| blocks.slice(Buffer::Output, rank);
    let together = if blocks.longest() <= plan.eager(Form::Element) { size } else { POSTED_MAX };
    for nearest in (1..size).step_by(together) {
        let distances = || nearest..size.min(nearest + together);
        for distance in distances() {
            steps.send(ring::after(rank, distance, size), own);
        }
        for distance in distances() {
            let from = ring::before(rank, distance, size);
            steps.recv(from, whole(from));
        }
    }
    // The last step, because in place it waits until the sends of its source are done.
    steps.copy(own, whole(rank));
    steps.build()
}
