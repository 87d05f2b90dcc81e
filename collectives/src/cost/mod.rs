//! What a call would take by an algorithm: an estimate, good enough to put algorithms in order.
//!
//! ```text
//! steps * latency + messages * overhead + bytes on the wire * time per byte + bytes combined
//! ```
//!
//! Where ranks share CPUs, a step waits until the other ranks of a CPU have run, and the work is
//! that of all ranks, if this is more for each CPU than that of the busiest rank.
//!
//! `Algorithm::stated` gives steps and elements; the rest follows from how an algorithm moves data
//! (`Way`). Integers only: all ranks must come to the same result.

use core::time::Duration;

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use crate::algorithm::Algorithm;
use crate::schedule::Form;
use crate::stage::pieces;

/// How long messages take on one class of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCost {
    /// From one rank's send to the other's receipt of a short message, in picoseconds.
    pub latency_ps: u128,
    /// What one more message keeps its sender busy, in picoseconds.
    pub message_ps: u128,
    /// One more byte, in picoseconds.
    pub byte_ps: u128,
    /// What a message and what one more byte cost both ends together in CPU time, in picoseconds.
    pub work_ps: [u128; 2],
}

/// Between ranks of one host: a cache line changes owners twice, and 10 GB/s are copied.
pub const SAME_HOST: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 100_000, byte_ps: 100, work_ps: [150_000, 100] };

/// Tokens between ranks of one host whose buffers are windows, and what they read and store there.
pub const IN_WINDOWS: LinkCost =
    LinkCost { latency_ps: 280_000, message_ps: 50_000, byte_ps: 100, work_ps: [100_000, 100] };

/// Tokens between ranks of one host that pass ordinary buffers through stages, and what they copy
/// there, read and take.
pub const STAGED: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 50_000, byte_ps: 70, work_ps: [100_000, 70] };

/// Between hosts: TCP over a switch, 20 Gbit/s for all ranks of a host together.
pub const ACROSS_HOSTS: LinkCost = LinkCost {
    latency_ps: 20_000_000,
    message_ps: 2_000_000,
    byte_ps: 400,
    work_ps: [17_000_000, 800],
};

/// From one rank to another of the same CPU, in picoseconds: who waits yields, at times in vain.
const SWITCH_PS: u128 = 2_500_000;

/// Combining one byte that arrives, in cache: 20 GB/s, in picoseconds.
const COMBINED_BYTE_PS: u128 = 50;

/// How much slower links are, in quarters, when everyone sends to everyone through the switches and
/// many send to one.
const CROWDED_QUARTERS: u128 = 5;

/// How an algorithm moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Blocks go around a ring.
    Blocks,
    /// So many elements go from rank to rank, in chunks that follow each other: chains and trees.
    Pipeline(usize),
    /// Partners near and far exchange ever more, or ever less.
    Exchange,
    /// Everyone to everyone.
    Direct,
}

impl Way {
    fn of(algorithm: &Algorithm, call: &Call) -> Self {
        match (algorithm.collective, algorithm.name) {
            (Collective::Reduce, "ring") => Self::Pipeline(call.count),
            (_, "ring" | "scatter_allgather") => Self::Blocks,
            (_, "tree" | "binomial" | "chain") => Self::Pipeline(call.count),
            (_, "double_tree") => Self::Pipeline(call.count / 2),
            (_, "one_shot" | "two_shot" | "direct" | "window" | "staged") => Self::Direct,
            _ => Self::Exchange,
        }
    }

    /// Whether all but the first and the last of consecutive ranks talk only to one another, or
    /// nearly so.
    const fn is_local(self) -> bool {
        matches!(self, Self::Blocks | Self::Pipeline(_))
    }
}

/// What an algorithm moves, in elements of the busiest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    way: Way,
    /// Messages that wait for each other,
    steps: usize,
    /// and their elements in all.
    chain: usize,
    messages: usize,
    /// Sent or taken, whichever is more; through stages, taken.
    moved: usize,
    /// Of this, inputs and partial sums rather than results.
    summed: usize,
    /// Of this, in accumulators.
    wide: usize,
    /// Moved by all ranks together.
    total: usize,
}

impl Traffic {
    fn of(algorithm: &Algorithm, call: &Call, size: usize) -> Self {
        let way = Way::of(algorithm, call);
        let stated = (algorithm.stated)(call, size);
        let (steps, sent) = (stated.steps, stated.sent);
        let (moved, summed) = match (call.collective, algorithm.name) {
            // The root takes more than anyone sends.
            (Collective::Reduce, "binomial") => {
                let taken = call.count * size.next_power_of_two().ilog2() as usize;
                (taken, taken)
            }
            (Collective::AllReduce, "one_shot" | "recursive_doubling") => (sent, sent),
            // As much is read to be combined as is taken.
            (Collective::AllReduce, "staged") => (2 * sent, sent / 2),
            (Collective::AllReduce, _) => (sent, sent / 2),
            (collective, _) if collective.reduces() => (sent, sent),
            _ => (sent, 0),
        };
        let (messages, chain) = match way {
            Way::Direct => (steps * (size - 1), sent / (size - 1).max(1)),
            // A rank of a chain or a tree has few neighbours, however long the way.
            Way::Pipeline(len) => (moved.div_ceil(len.max(1)), steps * len),
            Way::Blocks | Way::Exchange => (steps, sent),
        };
        let wide = if way == Way::Direct { 0 } else { summed };
        let total = match (call.collective, way) {
            // All but the root take the buffer once, or give it once.
            (Collective::Broadcast | Collective::Reduce, _) => (size - 1) * call.count,
            (Collective::AllReduce, Way::Pipeline(_)) => 2 * (size - 1) * call.count,
            _ => size.saturating_mul(moved),
        };
        Self { way, steps, chain, messages, moved, summed, wide, total }
    }

    /// What a rank does on average of `work`, which the busiest one does.
    fn average(&self, work: u128, size: usize) -> u128 {
        let all = self.moved as u128 * size as u128;
        let share = ((self.total as u128) << 20).checked_div(all).unwrap_or(1 << 20);
        (work * share) >> 20
    }
}

/// How long a call takes of `steps` messages that wait for each other, if ranks with CPUs of their
/// own would spend `alone` waiting and at work, and each rank has `work` for its CPU on average.
fn taking_turns(layout: &Layout, steps: u128, work: u128, alone: [u128; 2]) -> u128 {
    let (crowd, [waiting, busy]) = (layout.crowd(), alone);
    if !crowd.is_dense() {
        return waiting + busy;
    }
    let of_cpu = |each: u128| each * crowd.ranks as u128 / crowd.cpus as u128;
    let turns = steps * of_cpu(SWITCH_PS);
    if layout.hosts() <= 1 {
        return turns + busy.max(of_cpu(work));
    }
    // Containers of one machine are not far from each other, but what they send takes CPU time, be
    // it in vain that others are free; and a network may be between them all the same.
    let one_machine = crowd.ranks == layout.size();
    let waiting = if one_machine { turns } else { waiting.max(turns) };
    waiting + busy + of_cpu(work).max(steps * ACROSS_HOSTS.work_ps[0])
}

/// What of a layout the price depends on.
#[derive(Clone, Copy, Debug)]
struct Site {
    hosts: usize,
    /// Ranks on the fullest host.
    crowd: usize,
    /// How often the host changes on the way around the ranks.
    borders: usize,
}

impl Site {
    fn of(layout: &Layout) -> Self {
        let (size, hosts) = (layout.size(), layout.hosts());
        let mut ranks = alloc::vec![0; hosts];
        let mut borders = 0;
        for index in 0..size {
            let (rank, next) = (Rank::at(index), Rank::at((index + 1) % size));
            ranks[layout.host(rank) as usize] += 1;
            borders += usize::from(!layout.same_host(rank, next));
        }
        Self { hosts, crowd: ranks.into_iter().max().unwrap_or(0), borders }
    }
}

/// What `call` would take by `algorithm` if pipelines pass on `chunk` elements at a time.
///
/// # Panics
/// If `layout` has no ranks.
#[must_use]
pub fn price(algorithm: &Algorithm, call: &Call, layout: &Layout, chunk: usize) -> Duration {
    let traffic = Traffic::of(algorithm, call, layout.size());
    let site = Site::of(layout);
    // In 128 bits, since all to all at the largest scale is more than 64 hold.
    let bytes = |form: Form| form.data_type(call).bytes() as u128;
    let wide = traffic.wide as u128 * (bytes(Form::Accumulator) - bytes(Form::Element));
    let carried = |elements: usize| elements as u128 * bytes(Form::Element) + wide;
    // A pipeline has to be filled; before that, no more than the chain is under way.
    let filling = traffic.moved.saturating_add(traffic.steps.saturating_mul(chunk));
    let moved = carried(traffic.moved.max(traffic.chain.min(filling)));
    let pieces =
        if algorithm.needs_stage() { pieces(call, layout.size(), chunk).max(1) } else { 1 };
    // A piece is one step behind the piece before.
    let steps = (traffic.steps + pieces - 1) as u128;
    let messages = (traffic.messages * pieces) as u128;
    let near = match algorithm {
        _ if algorithm.needs_windows() => IN_WINDOWS,
        _ if algorithm.needs_stage() => STAGED,
        _ => SAME_HOST,
    };
    let mut link = near;
    let (waiting, busy) = if site.hosts <= 1 {
        (steps * near.latency_ps, messages * near.message_ps + moved * near.byte_ps)
    } else if traffic.way.is_local() && site.borders < layout.size() {
        // Most messages stay on a host, and one or two of its ranks use the network.
        let far = steps.min(2 * site.borders as u128);
        let users = site.borders.div_ceil(site.hosts) as u128;
        let waiting = far * (ACROSS_HOSTS.latency_ps + ACROSS_HOSTS.message_ps)
            + (steps - far) * near.latency_ps;
        (waiting, messages * near.message_ps + moved * ACROSS_HOSTS.byte_ps * users)
    } else {
        link = ACROSS_HOSTS;
        let crowded = if traffic.way.is_local() { 4 } else { CROWDED_QUARTERS };
        let bytes = moved * link.byte_ps * site.crowd as u128 * crowded / 4;
        (steps * link.latency_ps, messages * link.message_ps + bytes)
    };
    let combined = traffic.summed as u128 * bytes(Form::Accumulator) * COMBINED_BYTE_PS;
    let [message_ps, byte_ps] = link.work_ps;
    let pieces = messages.max((traffic.moved / chunk) as u128);
    let work = pieces * message_ps + carried(traffic.moved) * byte_ps + combined;
    let work = traffic.average(work, layout.size());
    let time = taking_turns(layout, steps, work, [waiting, busy + combined]);
    Duration::from_nanos(u64::try_from(time / 1000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
