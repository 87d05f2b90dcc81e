//! Binomial tree: a rank that has a chunk sends it to all its children, the largest subtree first.
//! For messages so short that the number of steps counts.
//!
//! A rank waits only for its parent to send and for its children to receive, so no ranks wait in a
//! circle.
//!
//! Where the fabric is known, the tree is one of hosts, with a tree of ranks below each. Its cost
//! is then that of both trees together.
//!
//! Steps: floor(log2 n). Sent by the root, the busiest rank: ceil(log2 n) times the buffer.
//! Pipelined in chunks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::pattern::host_tree::RootedTree;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "binomial",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::in_tree,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let (steps, children) = RootedTree::new(layout, call.root).extent();
    Stated { steps, sent: children * call.count }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
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
        // The last step, because in place it waits until the sends of its source are done.
        steps.copy(own, output);
    }
    steps.build()
}
