//! Linear barrier: all ranks tell rank 0 that they have entered, and then it releases them.
//!
//! A token is one element of scratch; its value does not matter. Links accept tokens at once.
//!
//! Steps: 2. Sent by rank 0: n-1 tokens.
//!
//! Source: a flat tree.

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Barrier,
    name: "linear",
    needs: Needs::Links,
    pattern: Pattern::AtRoot,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::at_root,
};

fn stated(_: &Call, layout: &Layout) -> Stated {
    let others = layout.size() - 1;
    Stated { steps: 2 * others.min(1), sent: others }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    // Two elements, so that no token waits for the one before to leave.
    let (sent, received) = (steps.scratch(1), steps.scratch(1));
    let center = Rank(0);
    if plan.rank != center {
        steps.send(center, sent);
        steps.recv(center, received);
        return steps.build();
    }
    for other in 1..plan.size() {
        steps.recv(Rank::at(other), received);
    }
    for other in 1..plan.size() {
        steps.send(Rank::at(other), sent);
    }
    steps.build()
}
