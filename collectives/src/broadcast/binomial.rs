//! Binomial tree: a rank that has a chunk passes it on to all its children, the largest subtree
//! first.
//!
//! Ranks wait only for their parent to send and for their children to take, never in a circle.
//!
//! Steps: floor(log2 n). Sent by the root: ceil(log2 n) times the buffer. Pipelined in chunks; for
//! messages so short that the number of steps counts.
//!
//! Where the fabric is known, the tree is one of hosts, with a tree of ranks below each. The steps
//! and the bytes of the busiest rank are then those of both trees together.
//!
//! Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//! 2005.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::chunk::chunks;
use crate::crossing::Messages;
use crate::pattern::host_tree::RootedTree;
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "binomial",
    needs: Needs::Links,
    way: Way::Pipelines(1),
    schedule,
    stated,
    moved: Moved::results,
    messages,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let (steps, children) = RootedTree::new(layout, call.root).extent();
    Stated { steps, sent: children * call.count }
}

fn messages(messages: &mut Messages<'_>) {
    let (layout, root, count) = (messages.layout, messages.call.root, messages.call.count);
    let tree = RootedTree::new(layout, root);
    for rank in messages.ranks() {
        for child in tree.place(rank).children {
            messages.send(rank, child.rank, Form::Element, count);
        }
    }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (rank, root) = (plan.rank, plan.call.root);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let place = RootedTree::new(plan.layout, root).place(rank);
    let output = Slice::new(Buffer::Output, 0, plan.call.count);
    let own = if rank == root { Slice { buffer: Buffer::Input, ..output } } else { output };
    for piece in chunks(own, plan.chunk) {
        if let Some(parent) = place.parent {
            steps.recv(parent, piece);
        }
        for child in place.children.iter().rev() {
            steps.send(child.rank, piece);
        }
    }
    if rank == root {
        // Last, since in place it waits until its source has left.
        steps.copy(own, output);
    }
    steps.build()
}
