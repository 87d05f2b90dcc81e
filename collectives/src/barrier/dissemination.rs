//! Dissemination barrier: in round k each rank sends a token to the rank 2^k after it.
//!
//! A token stands for the ranks whose tokens have reached its sender in earlier rounds, and for the
//! sender. After round k a rank has tokens that stand for 2^(k+1) ranks, itself included. A token
//! is one element of scratch; its value does not matter. Each rank sends before it waits, and links
//! accept tokens at once.
//!
//! Steps: ceil(log2 n). Sent by each rank: ceil(log2 n) tokens.
//!
//! Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::dissemination::{distances, rounds};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Barrier,
    name: "dissemination",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: |_, layout| rails::around(layout, layout.aligned(), distances(layout.size())),
};

fn stated(_: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: rounds(size), sent: rounds(size) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let member = plan.in_cube();
    let mut steps = Builder::new(plan, ALGORITHM.name, 1).in_order(&member.order);
    // Two elements, so that no token waits for the one before to leave.
    let (sent, received) = (steps.scratch(1), steps.scratch(1));
    for distance in distances(plan.size()) {
        steps.send(ring::after(member.place, distance, plan.size()), sent);
        steps.recv(ring::before(member.place, distance, plan.size()), received);
    }
    steps.build()
}
