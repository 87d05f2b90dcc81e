//! Double binary tree: each half of the buffer goes up and down a binary tree of its own.
//!
//! The inner ranks of one tree are the leaves of the other. So all ranks send and receive about
//! equally much, and none more than twice the buffer: the bandwidth of the ring at the latency of a
//! tree. The trees share nothing, so each has a lane.
//!
//! Where the fabric is known, the trees are trees of hosts, with a tree of ranks below each. The
//! ranks that lead the hosts are on another rail in each tree.
//!
//! Steps: 2 floor(log2 n). Sent by the busiest rank: 2 times the buffer (1 times for 2 ranks, 3/2
//! times for 3). Pipelined in chunks.
//!
//! Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction
//! and scan", 2009.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank};

use super::tree::{stated_of, stay, up_and_down};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::block;
use crate::pattern::double_tree::{self, TREES};
use crate::pattern::host_tree::ShardTree;
use crate::pattern::tree::{Place, height};
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "double_tree",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(TREES),
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: |_, layout| {
        let trees = [0, 1].map(|tree| tree_of(layout, tree));
        stay(layout, |rank| trees.each_ref().map(|tree| tree.place(rank)))
    },
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    if layout.has_fabric() {
        let trees = [0, 1].map(|tree| tree_of(layout, tree));
        let places = |rank| trees.each_ref().map(|tree| tree.place(rank));
        return stated_of(layout, places, call.count / TREES);
    }
    let size = layout.size();
    let halves = if size == 1 { 0 } else { size.min(4) };
    Stated { steps: 2 * height(size), sent: halves * call.count / 2 }
}

/// One of the two trees. Where the fabric is known, it is a tree of hosts, whose leaders are on
/// another rail in each tree.
fn tree_of(layout: &Layout, tree: usize) -> ShardTree<'_, impl Fn(Rank, usize) -> Place> {
    ShardTree::new(layout, tree, move |rank, size| double_tree::place(rank, tree, size))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let count = plan.call.count;
    let mut steps = Builder::new(plan, ALGORITHM.name, TREES);
    for tree in 0..TREES {
        let half = block(Buffer::Input, count, TREES, tree);
        up_and_down(steps.lane(tree), plan, &tree_of(plan.layout, tree).place(plan.rank), half);
    }
    steps.build()
}
