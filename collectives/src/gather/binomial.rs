//! Binomial tree: each rank collects the blocks of all ranks below it, and sends them to its parent
//! in one message. For messages so short that the number of steps counts.
//!
//! A message has the sender's block first, and then those of each child's subtree, the smallest
//! first. The root puts each block into its place as it arrives. A rank waits only for its children
//! to send and for its parent to receive, so no ranks wait in a circle.
//!
//! Where the fabric is known, the tree is one of hosts, with a tree of ranks below each. So each
//! host but the root's sends one message to another. Steps are then those of both trees together.
//!
//! Steps: floor(log2 n). Sent by the child of the root with the largest subtree: the blocks of
//! that. The root receives n-1 blocks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::host_tree::RootedTree;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Gather,
    name: "binomial",
    needs: Needs::Links,
    pattern: Pattern::Subtrees,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::in_tree,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let tree = RootedTree::new(layout, call.root);
    let below = tree.place(call.root).children;
    let largest = below.iter().map(|child| tree.subtree(child.rank).len()).max();
    Stated { steps: tree.extent().0, sent: largest.unwrap_or(0) * call.count }
}

/// The root receives more than any rank sends.
fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    Moved::results(call, layout, call.count * (layout.size() - 1))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (rank, count) = (plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let tree = RootedTree::new(plan.layout, plan.call.root);
    let place = tree.place(rank);
    let own = Slice::new(Buffer::Input, 0, count);
    let Some(parent) = place.parent else {
        let block = |rank: Rank| Slice::new(Buffer::Output, rank.index() * count, count);
        steps.copy(own, block(rank));
        for child in place.children {
            for below in tree.subtree(child.rank) {
                steps.recv(child.rank, block(below));
            }
        }
        return steps.build();
    };
    if place.children.is_empty() {
        steps.send(parent, own);
        return steps.build();
    }
    let mut blocks = steps.elements(tree.subtree(rank).len() * count);
    let all = blocks;
    steps.copy(own, blocks.take(count));
    blocks = blocks.skip(count);
    for child in place.children {
        let len = tree.subtree(child.rank).len() * count;
        steps.recv(child.rank, blocks.take(len));
        blocks = blocks.skip(len);
    }
    steps.send(parent, all);
    steps.build()
}
