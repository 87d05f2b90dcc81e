//! Binomial tree: each rank gets the blocks of all ranks below it in one message, and passes them
//! on to its children, the largest subtree first. For messages so short that the number of steps
//! counts.
//!
//! A message has the receiver's block first, and then those of each child's subtree, the smallest
//! first. The root copies blocks that do not lie in this order in its input. A rank waits only for
//! its parent to send and for its children to receive, so no ranks wait in a circle.
//!
//! Where the fabric is known, the tree is one of hosts, with a tree of ranks below each. So each
//! host but the root's receives one message of another. Steps are then those of both trees
//! together.
//!
//! Steps: floor(log2 n). Sent by the root: n-1 blocks.
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
    collective: Collective::Scatter,
    name: "binomial",
    needs: Needs::Links,
    pattern: Pattern::Subtrees,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::in_tree,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let (steps, _) = RootedTree::new(layout, call.root).extent();
    Stated { steps, sent: call.count * (layout.size() - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (rank, count) = (plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let tree = RootedTree::new(plan.layout, plan.call.root);
    let place = tree.place(rank);
    let result = Slice::new(Buffer::Output, 0, count);
    let Some(parent) = place.parent else {
        let block = |rank: Rank| Slice::new(Buffer::Input, rank.index() * count, count);
        for child in place.children.iter().rev() {
            let below = tree.subtree(child.rank);
            let is_run = below.windows(2).all(|pair| pair[0].index() + 1 == pair[1].index());
            let mut blocks = block(child.rank);
            blocks.len = below.len() * count;
            if !is_run {
                blocks = steps.elements(blocks.len);
                for (at, rank) in below.iter().enumerate() {
                    steps.copy(block(*rank), blocks.skip(at * count).take(count));
                }
            }
            steps.send(child.rank, blocks);
        }
        // The last step, because in place it waits until the sends of its source are done.
        steps.copy(block(rank), result);
        return steps.build();
    };
    steps.recv(parent, result);
    let mut blocks = steps.elements((tree.subtree(rank).len() - 1) * count);
    steps.recv(parent, blocks);
    let mut sends = alloc::vec::Vec::new();
    for child in place.children {
        let len = tree.subtree(child.rank).len() * count;
        sends.push((child.rank, blocks.take(len)));
        blocks = blocks.skip(len);
    }
    for (child, blocks) in sends.into_iter().rev() {
        steps.send(child, blocks);
    }
    steps.build()
}
