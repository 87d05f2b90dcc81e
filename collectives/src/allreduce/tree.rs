//! Binomial tree: partial sums travel up to rank 0, results back down.
//!
//! A rank combines its input with the sums of all its children in one pass, and sends that sum to
//! its parent. The root finishes the result, and every rank sends it on to its children. Chunks
//! follow each other up. Earlier ones go down while later ones still go up.
//!
//! Where the fabric is known, the tree is one of hosts, with a tree of ranks below each.
//!
//! Steps: 2 floor(log2 n). Sent by the root, the busiest rank: ceil(log2 n) times the buffer.
//! Pipelined in chunks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::part;
use crate::pattern::host_tree::ShardTree;
use crate::pattern::tree::{self, Child, Place};
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "tree",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: |_, layout| {
        let tree = tree_of(layout);
        stay(layout, |rank| [tree.place(rank)])
    },
};

/// Partial sums that a rank keeps: it makes the next while the last one leaves. On the way down a
/// rank is as many turns behind its parent.
const SUMS: usize = 2;

fn stated(call: &Call, layout: &Layout) -> Stated {
    if layout.has_fabric() {
        let tree = tree_of(layout);
        return stated_of(layout, |rank| [tree.place(rank)], call.count);
    }
    let size = layout.size();
    let children = size.next_power_of_two().ilog2() as usize;
    Stated { steps: 2 * tree::height(size), sent: children * call.count }
}

/// Whether messages along the edges of trees stay on their rails.
pub(super) fn stay<const TREES: usize>(
    layout: &Layout,
    places: impl Fn(Rank) -> [Place; TREES],
) -> bool {
    let above = |rank| places(rank).into_iter().filter_map(move |it| Some([it.parent?, rank]));
    rails::stay(layout, rails::ranks(layout).flat_map(above))
}

/// The cost of trees. In each of them `count` elements go up and down.
pub(super) fn stated_of<const TREES: usize>(
    layout: &Layout,
    places: impl Fn(Rank) -> [Place; TREES],
    count: usize,
) -> Stated {
    let mut stated = Stated { steps: 0, sent: 0 };
    for places in (0..layout.size()).map(|rank| places(Rank::at(rank))) {
        let neighbours = |place: &Place| place.children.len() + usize::from(place.parent.is_some());
        let depth = places.iter().map(|place| place.depth).max().unwrap_or(0);
        let sent: usize = places.iter().map(neighbours).sum();
        stated.steps = stated.steps.max(2 * depth);
        stated.sent = stated.sent.max(sent * count);
    }
    stated
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let place = tree_of(plan.layout).place(plan.rank);
    up_and_down(&mut steps, plan, &place, Slice::new(Buffer::Input, 0, plan.call.count));
    steps.build()
}

/// The tree below rank 0. Where the fabric is known, it is a tree of hosts.
fn tree_of(layout: &Layout) -> ShardTree<'_, impl Fn(Rank, usize) -> Place> {
    ShardTree::new(layout, 0, |rank, size| tree::place(rank, Rank(0), size))
}

/// Reduces `input` to the root of a tree and broadcasts the result.
///
/// A chunk comes back down to a rank at the earliest two turns, times its distance from the root,
/// after it went up. The schedule expects it just then. No ranks wait in a circle, for any window.
/// In each turn a rank waits for the sums of its children, sent in the same turn. It also waits for
/// the result that its parent sent two turns ago. Finally it waits for room, and gets it. A parent
/// that waits for room to a child has taken the child's sums of this turn. The child has memory for
/// the sums of two turns, so it goes on until it takes the result.
pub(super) fn up_and_down(
    steps: &mut Builder,
    plan: &ScheduleParams<'_>,
    place: &Place,
    input: Slice,
) {
    let (pieces, lag) = (input.len.div_ceil(plan.chunk), SUMS * place.depth);
    let inner = place.parent.is_some() && !place.children.is_empty();
    let sum_len = if inner { input.len.min(plan.chunk) } else { 0 };
    let form = place.parent.map_or(Form::Accumulator, |parent| plan.sums_form(plan.rank, parent));
    let sums = [(); SUMS].map(|()| steps.sums(sum_len, form));
    for turn in 0..pieces + lag {
        if turn < pieces {
            up(steps, plan, place, part(input, turn, plan.chunk), sums[turn % SUMS]);
        }
        if let Some(index) = turn.checked_sub(lag) {
            let own = part(input, index, plan.chunk);
            down(steps, place, Slice { buffer: Buffer::Output, ..own });
        }
    }
}

fn up(steps: &mut Builder, plan: &ScheduleParams<'_>, place: &Place, own: Slice, sum: Slice) {
    let sources = || sources(plan, place, own);
    let Some(parent) = place.parent else {
        let result = Slice { buffer: Buffer::Output, ..own };
        return steps.reduce(result, &sources());
    };
    if place.children.is_empty() {
        return steps.send(parent, own);
    }
    let sum = sum.take(own.len);
    steps.reduce(sum, &sources());
    steps.send(parent, sum);
}

fn down(steps: &mut Builder, place: &Place, result: Slice) {
    if let Some(parent) = place.parent {
        steps.recv(parent, result);
    }
    // The last child has the largest subtree, so it comes first.
    for child in place.children.iter().rev() {
        steps.send(child.rank, result);
    }
}

fn sources(plan: &ScheduleParams<'_>, place: &Place, own: Slice) -> Vec<Source> {
    let below = place.children.iter().map(|child| {
        Source::Wire(child.rank, form_of(child, plan.sums_form(child.rank, plan.rank)))
    });
    core::iter::once(Source::Local(own)).chain(below).collect()
}

/// The form in which a child sends its sums up, if sums on that link are in `sums` form. A leaf
/// sends its bare input.
const fn form_of(child: &Child, sums: Form) -> Form {
    if child.is_leaf { Form::Element } else { sums }
}
