//! Linear: every rank sends its block to the root. For long messages, where each byte should travel
//! once.
//!
//! The root receives from one rank after the other, and the others wait for the root alone.
//!
//! Steps: 1. Sent by each rank but the root: its block.
//!
//! Source: a flat tree.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Gather,
    name: "linear",
    needs: Needs::Links,
    pattern: Pattern::AtRoot,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::at_root,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let steps = usize::from(layout.size() > 1);
    Stated { steps, sent: steps * call.count }
}

/// The root receives more than any rank sends.
fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    Moved::results(call, layout, call.count * (layout.size() - 1))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, root, count) = (plan.size(), plan.rank, plan.call.root, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let own = Slice::new(Buffer::Input, 0, count);
    if rank != root {
        steps.send(root, own);
        return steps.build();
    }
    let block = |rank: Rank| Slice::new(Buffer::Output, rank.index() * count, count);
    steps.copy(own, block(rank));
    for distance in 1..size {
        let from = ring::after(root, distance, size);
        steps.recv(from, block(from));
    }
    steps.build()
}
