//! Linear: the root sends each rank its block. For long messages, where each byte should travel
//! once.
//!
//! The root posts all sends, and the others wait for the root alone.
//!
//! Steps: 1. Sent by the root: n-1 blocks.
//!
//! Source: a flat tree.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, ScheduleParams, Stated, Way};
use crate::crossing::Messages;
use crate::pattern::ring;
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Scatter,
    name: "linear",
    needs: Needs::Links,
    way: Way::AtRoot,
    schedule,
    stated,
    moved: Moved::results,
    messages,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

fn messages(messages: &mut Messages<'_>) {
    let (root, count) = (messages.call.root, messages.call.count);
    for rank in messages.ranks().filter(|rank| *rank != root) {
        messages.send(root, rank, Form::Element, count);
    }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, root, count) = (plan.size(), plan.rank, plan.call.root, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let result = Slice::new(Buffer::Output, 0, count);
    if rank != root {
        steps.recv(root, result);
        return steps.build();
    }
    let block = |rank: Rank| Slice::new(Buffer::Input, rank.index() * count, count);
    for distance in 1..size {
        let to = ring::after(root, distance, size);
        steps.send(to, block(to));
    }
    steps.copy(block(rank), result);
    steps.build()
}
