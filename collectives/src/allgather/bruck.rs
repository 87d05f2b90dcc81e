//! Bruck: in each round a rank gets all blocks that the rank at twice the distance has, in one
//! message.
//!
//! A rank keeps blocks in scratch, in the order in which they arrive: its own, then those of the
//! ranks after it. Before the round of distance d it has d blocks. In that round it receives the
//! next d blocks from the rank d after it, and sends its own d to the rank d before it. In the end
//! it rotates the blocks into place. No algorithm needs fewer messages, for any number of ranks.
//! The price is one more copy, so this is for short messages.
//!
//! In each round a rank waits only for messages of the same or an earlier round.
//!
//! Steps: ceil(log2 n). Sent by each rank: n-1 blocks.
//!
//! Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
//! communications in multiport message-passing systems", 1997.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, ScheduleParams, Stated, Way};
use crate::crossing::Messages;
use crate::pattern::dissemination::{distances, rounds};
use crate::pattern::ring;
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "bruck",
    needs: Needs::Links,
    way: Way::Exchange,
    schedule,
    stated,
    moved: Moved::results,
    messages,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: rounds(size), sent: call.count * (size - 1) }
}

fn messages(messages: &mut Messages<'_>) {
    let (size, count) = (messages.size(), messages.call.count);
    for rank in messages.ranks() {
        for distance in distances(size) {
            let blocks = distance.min(size - distance) * count;
            messages.send(rank, ring::before(rank, distance, size), Form::Element, blocks);
        }
    }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let staged = steps.scratch(size * count);
    steps.copy(Slice::new(Buffer::Input, 0, count), staged.take(count));
    for distance in distances(size) {
        let blocks = distance.min(size - distance) * count;
        steps.send(ring::before(rank, distance, size), staged.take(blocks));
        let gotten = staged.skip(distance * count).take(blocks);
        steps.recv(ring::after(rank, distance, size), gotten);
    }
    let (wrapped, straight) = (rank.index() * count, (size - rank.index()) * count);
    let output = Slice::new(Buffer::Output, 0, size * count);
    steps.copy(staged.take(straight), output.skip(wrapped));
    steps.copy(staged.skip(straight), output.take(wrapped));
    steps.build()
}
