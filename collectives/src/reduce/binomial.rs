//! Binomial tree: each rank combines its input with the sums of all its children in one pass, and
//! sends the sum to its parent. For messages so short that the number of steps counts.
//!
//! The order of combination is that of the tree, from the root on: a rank's own input, then the
//! sums of its subtrees. A rank waits only for its children to send and for its parent to receive,
//! so no ranks wait in a circle.
//!
//! Where the fabric is known, the tree is one of hosts, with a tree of ranks below each. Steps, and
//! the number of buffers that the root receives, are then those of both trees together.
//!
//! Steps: floor(log2 n). Sent by each rank but the root: the buffer once. The root receives it
//! ceil(log2 n) times. Pipelined in chunks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::pattern::host_tree::RootedTree;
use crate::pattern::tree::Child;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Reduce,
    name: "binomial",
    needs: Needs::Links,
    pattern: Pattern::Pipelines(1),
    schedule,
    stated,
    moved,
    stays_on_rail: rails::in_tree,
};

/// Partial sums that a rank keeps: it makes the next while earlier ones leave.
const SUMS: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let (steps, _) = RootedTree::new(layout, call.root).extent();
    Stated { steps, sent: if layout.size() > 1 { call.count } else { 0 } }
}

/// The form in which a child sends its sums up, if sums on that link are in `sums` form. A leaf
/// sends its bare input.
const fn form_of(child: &Child, sums: Form) -> Form {
    if child.is_leaf { Form::Element } else { sums }
}

/// The root receives more than any rank sends.
fn moved(call: &Call, layout: &Layout, _: usize) -> Moved {
    let (_, children) = RootedTree::new(layout, call.root).extent();
    Moved::sums(call, layout, call.count * children)
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let count = plan.call.count;
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let place = RootedTree::new(plan.layout, plan.call.root).place(plan.rank);
    let inner = place.parent.is_some() && !place.children.is_empty();
    let sum_len = if inner { count.min(plan.chunk) } else { 0 };
    let form = place.parent.map_or(Form::Accumulator, |parent| plan.sums_form(plan.rank, parent));
    let sums = [(); SUMS].map(|()| steps.sums(sum_len, form));
    for (own, sum) in
        chunks(Slice::new(Buffer::Input, 0, count), plan.chunk).zip(sums.iter().cycle())
    {
        let below = place.children.iter().map(|child| {
            Source::Wire(child.rank, form_of(child, plan.sums_form(child.rank, plan.rank)))
        });
        let sources: Vec<Source> = core::iter::once(Source::Local(own)).chain(below).collect();
        match place.parent {
            None => steps.reduce(Slice { buffer: Buffer::Output, ..own }, &sources),
            Some(parent) if place.children.is_empty() => steps.send(parent, own),
            Some(parent) => {
                let sum = sum.take(own.len);
                steps.reduce(sum, &sources);
                steps.send(parent, sum);
            }
        }
    }
    steps.build()
}
