//! Scatter and all-gather: the root scatters blocks over a binomial tree, then they go around a
//! ring.
//!
//! Ranks are numbered from the root on. A subtree gets the blocks of its ranks in one message.
//! After that rank b has block b, and the other blocks of its subtree. Then each rank passes blocks
//! on to the next one, except for those that the next one got with its subtree. The root passes on
//! blocks of its input and receives none. It sends the buffer twice, for any number of ranks, and
//! needs far fewer chunks under way than a chain.
//!
//! A long buffer goes segment by segment. In each turn of a segment a rank waits only for messages
//! of the same or an earlier turn, and posts few messages. The ring ends at the root. So no ranks
//! wait in a circle.
//!
//! Steps: n-1 (the scatter overlaps the ring: the longest chain is that of block 0). Sent by the
//! root: 2(n-1)/n of the buffer. Pipelined in chunks.
//!
//! Source: van de Geijn's algorithm, in Barnett, Gupta, Payne, Shuler, van de Geijn and Watts,
//! "Interprocessor collective communication library (InterCom)", 1994.

use core::ops::Range;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{blocks, chunks, part};
use crate::pattern::{ring, tree};
use crate::plan::Member;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "scatter_allgather",
    needs: Needs::Links,
    pattern: Pattern::Ring,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail,
};

/// Chunks of a block that go around together.
const IN_FLIGHT: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size - 1, sent: 2 * call.count / size * (size - 1) }
}

fn stays_on_rail(call: &Call, layout: &Layout) -> bool {
    let (order, size) = (layout.chain_from(call.root), layout.size());
    let root = Rank::at(order.place(call.root));
    let place = |rank: Rank| order.at(rank.index());
    let above = |rank| tree::place(rank, root, size).parent.map(|it| [it, rank].map(place));
    rails::in_chain(call, layout) && rails::stay(layout, rails::ranks(layout).filter_map(above))
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let member = plan.in_chain_from_root();
    let (rank, root, size) = (member.place, member.root, plan.size());
    let mut steps = Builder::new(plan, ALGORITHM.name, 1).in_order(&member.order);
    let output = Slice::new(Buffer::Output, 0, plan.call.count);
    let own = if rank == root { Slice { buffer: Buffer::Input, ..output } } else { output };
    for segment in chunks(own, size * IN_FLIGHT * plan.chunk) {
        scatter(&mut steps, &member, size, segment);
        gather(&mut steps, &member, plan, segment);
    }
    if rank == root {
        // The last step, because in place it waits until the sends of its source are done.
        steps.copy(own, output);
    }
    steps.build()
}

fn scatter(steps: &mut Builder, member: &Member, size: usize, segment: Slice) {
    let (rank, root) = (member.place, member.root);
    let place = tree::place(rank, root, size);
    let of_subtree = |rank| cut(segment, size, tree::subtree(rank, root, size));
    if let Some(parent) = place.parent {
        steps.recv(parent, of_subtree(rank));
    }
    for child in place.children.iter().rev() {
        steps.send(child.rank, of_subtree(child.rank));
    }
}

fn gather(steps: &mut Builder, member: &Member, plan: &ScheduleParams<'_>, segment: Slice) {
    let (size, rank, root) = (plan.size(), member.place, member.root);
    let (next, previous) = (ring::after(rank, 1, size), ring::before(rank, 1, size));
    let number = tree::subtree(rank, root, size).start;
    // The block that goes from `rank`, whose number is `number`, to the next rank in a turn.
    let passing = |rank: Rank, number: usize, turn: usize| {
        let to = ring::after(rank, 1, size);
        let block = (number + size - turn) % size;
        let had = to == root || tree::subtree(to, root, size).contains(&block);
        let block = cut(segment, size, block..block + 1);
        if had { block.take(0) } else { block }
    };
    let longest = cut(segment, size, 0..1).len;
    for turn in 0..size - 1 {
        let leaving = passing(rank, number, turn);
        let arriving = passing(previous, (number + size - 1) % size, turn);
        for index in 0..longest.div_ceil(plan.chunk) {
            steps.send(next, part(leaving, index, plan.chunk));
            steps.recv(previous, part(arriving, index, plan.chunk));
        }
    }
}

/// The blocks with these numbers, of a segment cut into `size` blocks.
fn cut(segment: Slice, size: usize, numbers: Range<usize>) -> Slice {
    let blocks = blocks(segment.buffer, segment.len, size, numbers.start, numbers.end);
    Slice { offset: segment.offset + blocks.offset, ..blocks }
}
