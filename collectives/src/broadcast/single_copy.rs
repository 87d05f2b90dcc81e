//! Broadcast by rendezvous sends: the root sends its buffer to all. Where the transport lets ranks
//! read each other's memory, they all copy it from there at once.
//!
//! Steps: 1. Sent by the root: n-1 times the buffer.
//!
//! Source: a flat tree, by single copies.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, ScheduleParams, Stated, Way};
use crate::crossing::Messages;
use crate::pattern::ring;
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "single_copy",
    needs: Needs::Rendezvous,
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
    let (size, rank, root) = (plan.size(), plan.rank, plan.call.root);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let output = Slice::new(Buffer::Output, 0, plan.call.count);
    if rank == root {
        let own = Slice { buffer: Buffer::Input, ..output };
        for distance in 1..size {
            steps.send(ring::after(root, distance, size), own);
        }
        // The last step, because in place it waits until the sends of its source are done.
        steps.copy(own, output);
    } else {
        steps.recv(root, output);
    }
    steps.build()
}
