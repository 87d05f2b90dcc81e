//! Double binary tree: each half of the buffer goes up and down a binary tree of its own.
//!
//! The inner ranks of one tree are the leaves of the other, so everyone sends and receives about
//! as much as everyone else, and nobody more than twice the buffer: the bandwidth of the ring at
//! the latency of a tree. The trees share nothing, so each has a lane.
//!
//! Steps: 2 floor(log2 n). Sent by the busiest rank: 2 times the buffer (for 2 and 3 ranks, 1 and
//! 3/2 times). Pipelined in chunks.
//!
//! Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//! scan", 2009.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective};

use super::tree::{edges, up_and_down};
use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::block;
use crate::crossing::Messages;
use crate::pattern::double_tree::{TREES, place};
use crate::pattern::tree::height;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "double_tree",
    schedule,
    stated,
    messages,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let halves = if size == 1 { 0 } else { size.min(4) };
    Stated { steps: 2 * height(size), sent: halves * call.count / 2 }
}

fn messages(messages: &mut Messages<'_>) {
    messages.in_order(messages.layout.tree());
    let (size, count) = (messages.size(), messages.call.count);
    for tree in 0..TREES {
        for rank in messages.ranks() {
            edges(messages, rank, &place(rank, tree, size), count / TREES);
        }
    }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, count) = (plan.size(), plan.call.count);
    let member = plan.in_tree();
    let mut steps = Builder::new(plan, ALGORITHM.name, TREES).in_order(&member.order);
    for tree in 0..TREES {
        let half = block(Buffer::Input, count, TREES, tree);
        up_and_down(steps.lane(tree), plan, &place(member.place, tree, size), half);
    }
    steps.build()
}
