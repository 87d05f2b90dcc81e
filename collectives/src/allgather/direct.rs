//! Direct: everyone sends its block to everyone, each beginning with the rank after it.
//!
//! All sends are posted before anything is received, if links accept them by themselves; otherwise
//! as many as can be posted, to the nearest ranks, and then what the nearest on the other side have
//! posted is received. When the rank that is furthest behind posts, the others have taken all that
//! it posted before; so nobody waits in a circle.
//!
//! Steps: 1, while everything can be posted. Sent by each rank: n-1 blocks. For messages so short
//! that only the number of steps counts, and for ranks that are all equally near.

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::crossing::Messages;
use crate::pattern::ring;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "direct",
    needs: Needs::Links,
    way: Way::Direct,
    schedule,
    stated,
    moved: Moved::results,
    messages,
};

pub(super) fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: usize::from(size > 1), sent: call.count * (size - 1) }
}

pub(super) fn messages(messages: &mut Messages<'_>) {
    messages.all_to_all(messages.call.count, 1);
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    named(ALGORITHM.name, plan)
}

/// The schedule under another name.
pub(super) fn named(name: &'static str, plan: &Plan<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, name, 1);
    let own = Slice::new(Buffer::Input, 0, count);
    let whole = |rank: Rank| Slice::new(Buffer::Output, rank.index() * count, count);
    let together = if count <= plan.eager() { size } else { POSTED_MAX };
    for nearest in (1..size).step_by(together) {
        let distances = || nearest..size.min(nearest + together);
        for distance in distances() {
            steps.send(ring::after(rank, distance, size), own);
        }
        for distance in distances() {
            let from = ring::before(rank, distance, size);
            steps.recv(from, whole(from));
        }
    }
    // Last, since in place it waits until its source has left.
    steps.copy(own, whole(rank));
    steps.build()
}
