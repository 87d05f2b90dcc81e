//! Linear, throttled: each rank sends a block to every other, and begins with the rank after it.
//! For messages of medium length.
//!
//! If links accept a block ahead of the receiver, a rank posts all sends before it receives.
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
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllToAll,
    name: "linear",
    needs: Needs::Links,
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::among_all,
};

pub(super) fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks = Blocks::of(plan);
    let together = if count <= plan.eager(Form::Element) { size } else { POSTED_MAX };
    for nearest in (1..size).step_by(together) {
        let distances = || nearest..size.min(nearest + together);
        for distance in distances() {
            let to = ring::after(rank, distance, size);
            steps.send(to, blocks.to(to));
        }
        if nearest == 1 {
            // The first messages are under way meanwhile.
            steps.copy(blocks.to(rank), blocks.from(rank));
        }
        for distance in distances() {
            let from = ring::before(rank, distance, size);
            steps.recv(from, blocks.from(from));
        }
    }
    if size == 1 {
        steps.copy(blocks.to(rank), blocks.from(rank));
    }
    steps.build()
}

/// The blocks of a rank.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    count: usize,
}

impl Blocks {
    pub(super) const fn of(plan: &ScheduleParams<'_>) -> Self {
        Self { count: plan.call.count }
    }

    /// The block of the input that goes to a rank.
    pub(super) const fn to(self, rank: Rank) -> Slice {
        Slice::new(Buffer::Input, rank.index() * self.count, self.count)
    }

    /// The block of the output that comes from a rank.
    pub(super) const fn from(self, rank: Rank) -> Slice {
        Slice::new(Buffer::Output, rank.index() * self.count, self.count)
    }
}
