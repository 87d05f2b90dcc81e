//! The root sends each other rank a slice of its input: steps and costs.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Rank, Slice};

use crate::algorithm::{ScheduleParams, Stated};
use crate::pattern::ring;
use crate::schedule::{Builder, Schedule};

pub(crate) fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

/// The steps of a rank, if each rank gets `slice` of the root's input. The root posts all sends,
/// and the others wait for the root alone.
pub(crate) fn schedule(
    name: &'static str,
    plan: &ScheduleParams<'_>,
    slice: impl Fn(Rank) -> Slice,
) -> Schedule {
    let (size, rank, root) = (plan.size(), plan.rank, plan.call.root);
    let mut steps = Builder::new(plan, name, 1);
    let result = Slice::new(Buffer::Output, 0, plan.call.count);
    if rank != root {
        steps.recv(root, result);
        return steps.build();
    }
    for distance in 1..size {
        let to = ring::after(root, distance, size);
        steps.send(to, slice(to));
    }
    // The last step, because in place it waits until the sends of its source are done.
    steps.copy(slice(rank), result);
    steps.build()
}
