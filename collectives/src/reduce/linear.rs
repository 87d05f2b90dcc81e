//! Linear: the root combines the inputs of all ranks. For messages so short that only the number of
//! steps counts.
//!
//! Every other rank sends its input, chunk by chunk, and waits for the root alone.
//!
//! Steps: 1. Sent by each rank but the root: the buffer once. Pipelined in chunks.
//!
//! Source: a flat tree.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Reduce,
    name: "linear",
    needs: Needs::Links,
    pattern: Pattern::AtRoot,
    schedule,
    stated,
    moved,
    stays_on_rail: rails::at_root,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let steps = usize::from(layout.size() > 1);
    Stated { steps, sent: steps * call.count }
}

/// The root receives and combines the inputs of all others.
fn moved(_: &Call, layout: &Layout, sent: usize) -> Moved {
    let moved = (layout.size() - 1) * sent;
    Moved { moved, summed: moved }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, root) = (plan.size(), plan.call.root);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    for own in chunks(Slice::new(Buffer::Input, 0, plan.call.count), plan.chunk) {
        if plan.rank != root {
            steps.send(root, own);
            continue;
        }
        let others = (1..size).map(|distance| ring::after(root, distance, size));
        let wires = others.map(|rank| Source::Wire(rank, Form::Element));
        let sources: Vec<Source> = core::iter::once(Source::Local(own)).chain(wires).collect();
        steps.reduce(Slice { buffer: Buffer::Output, ..own }, &sources);
    }
    steps.build()
}
