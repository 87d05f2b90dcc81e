//! What a call would take by an algorithm: an estimate, good enough to put algorithms in order.
//!
//! ```text
//! steps * latency + messages * overhead + bytes on the wire * time per byte + bytes combined
//! ```
//!
//! `Algorithm::stated` gives steps and elements; the rest follows from how an algorithm moves data
//! (`Way`). Integers only: all ranks must come to the same result.

use core::time::Duration;

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use crate::algorithm::Algorithm;
use crate::schedule::Form;

/// How long messages take on one class of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCost {
    /// From one rank's send to the other's receipt of a short message, in picoseconds.
    pub latency_ps: u64,
    /// What one more message keeps its sender busy, in picoseconds.
    pub message_ps: u64,
    /// One more byte, in picoseconds.
    pub byte_ps: u64,
}

/// Between ranks of one host: a cache line changes owners twice, and 10 GB/s are copied.
pub const SAME_HOST: LinkCost = LinkCost { latency_ps: 500_000, message_ps: 100_000, byte_ps: 100 };

/// Between hosts: TCP over a switch, 20 Gbit/s for all ranks of a host together.
pub const ACROSS_HOSTS: LinkCost =
    LinkCost { latency_ps: 20_000_000, message_ps: 2_000_000, byte_ps: 400 };

/// Combining one byte that arrives, in cache: 20 GB/s, in picoseconds.
const COMBINED_BYTE_PS: u64 = 50;

/// How much slower links are, in quarters, when everyone sends to everyone through the switches and
/// many send to one.
const CROWDED_QUARTERS: u64 = 5;

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
            (_, "one_shot" | "two_shot" | "direct") => Self::Direct,
            _ => Self::Exchange,
        }
    }

    /// Whether all but the first and the last of consecutive ranks talk only to one another, or
    /// nearly so.
    const fn is_local(self) -> bool {
        matches!(self, Self::Blocks | Self::Pipeline(_))
    }
}

/// What an algorithm sends, in elements of the busiest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    way: Way,
    /// Messages that wait for each other,
    steps: usize,
    /// and their elements in all.
    chain: usize,
    messages: usize,
    sent: usize,
    /// Of what is sent, inputs and partial sums rather than results.
    summed: usize,
    /// Of this, in accumulators.
    wide: usize,
}

impl Traffic {
    fn of(algorithm: &Algorithm, call: &Call, size: usize) -> Self {
        let way = Way::of(algorithm, call);
        let stated = (algorithm.stated)(call, size);
        let (steps, sent) = (stated.steps, stated.sent);
        let summed = match (call.collective, algorithm.name) {
            (Collective::AllReduce, "one_shot" | "recursive_doubling") => sent,
            (Collective::AllReduce, _) => sent / 2,
            (collective, _) if collective.reduces() => sent,
            _ => 0,
        };
        let (messages, chain) = match way {
            Way::Direct => (steps * (size - 1), sent / (size - 1).max(1)),
            // A rank of a chain or a tree has few neighbours, however long the way.
            Way::Pipeline(len) => (sent.div_ceil(len.max(1)), steps * len),
            Way::Blocks | Way::Exchange => (steps, sent),
        };
        let wide = if way == Way::Direct { 0 } else { summed };
        Self { way, steps, chain, messages, sent, summed, wide }
    }
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
    let bytes = |form: Form| form.data_type(call).bytes() as u64;
    // A pipeline has to be filled; before that, no more than the chain is under way.
    let filling = traffic.sent.saturating_add(traffic.steps.saturating_mul(chunk));
    let moved = traffic.sent.max(traffic.chain.min(filling)) as u64 * bytes(Form::Element)
        + traffic.wide as u64 * (bytes(Form::Accumulator) - bytes(Form::Element));
    let (steps, messages) = (traffic.steps as u64, traffic.messages as u64);
    let travel = if site.hosts <= 1 {
        steps * SAME_HOST.latency_ps + messages * SAME_HOST.message_ps + moved * SAME_HOST.byte_ps
    } else if traffic.way.is_local() && site.borders < layout.size() {
        // Most messages stay on a host, and one or two of its ranks use the network.
        let far = steps.min(2 * site.borders as u64);
        let users = site.borders.div_ceil(site.hosts) as u64;
        far * (ACROSS_HOSTS.latency_ps + ACROSS_HOSTS.message_ps)
            + (steps - far) * SAME_HOST.latency_ps
            + messages * SAME_HOST.message_ps
            + moved * ACROSS_HOSTS.byte_ps * users
    } else {
        let crowded = if traffic.way.is_local() { 4 } else { CROWDED_QUARTERS };
        steps * ACROSS_HOSTS.latency_ps
            + messages * ACROSS_HOSTS.message_ps
            + moved * ACROSS_HOSTS.byte_ps * site.crowd as u64 * crowded / 4
    };
    let combined = traffic.summed as u64 * bytes(Form::Accumulator) * COMBINED_BYTE_PS;
    Duration::from_nanos(travel.saturating_add(combined) / 1000)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use ringfold_types::limits::LINK_BYTES_MIN;
    use ringfold_types::{Buffer, DataType, ReduceOp};

    use super::*;
    use crate::algorithm::Plan;
    use crate::schedule::{Schedule, Step};

    fn call(collective: Collective, count: usize) -> Call {
        let (data_type, op) = (DataType::Bf16, ReduceOp::Sum);
        Call { collective, count, data_type, op, root: Rank(0) }
    }

    fn schedules(algorithm: &Algorithm, call: Call, layout: &Layout) -> Vec<Schedule> {
        let (chunk, window_bytes) = (call.count.max(1), LINK_BYTES_MIN.max(8 * call.count));
        let plan = |rank| Plan { call, layout, rank: Rank::at(rank), chunk, window_bytes };
        (0..layout.size()).map(|rank| (algorithm.schedule)(&plan(rank))).collect()
    }

    /// The sends of a rank that `wanted` selects: how many, and how many elements.
    fn sends(schedule: &Schedule, wanted: impl Fn(Rank, Buffer) -> bool) -> (usize, usize) {
        let steps = schedule.lanes().iter().flatten();
        let sends = steps.filter_map(|step| match step {
            Step::Send { to, src } if wanted(*to, src.buffer) => Some(src.len),
            _ => None,
        });
        sends.fold((0, 0), |(messages, elements), len| (messages + 1, elements + len))
    }

    #[track_caller]
    fn assert_near(what: &str, estimate: usize, real: usize, unit: usize) {
        let near = estimate <= 2 * real + unit && real <= 2 * estimate + unit;
        assert!(near, "{what}: estimated {estimate}, really {real}");
    }

    #[test]
    fn estimates_are_near_what_schedules_do() {
        for size in [2, 3, 4, 8, 13, 32] {
            let layout = Layout::one_host(size);
            for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
                let call = call(algorithm.collective, 16 * size * 64);
                let traffic = Traffic::of(algorithm, &call, size);
                let schedules = schedules(algorithm, call, &layout);
                let busiest = |wanted: &dyn Fn(Rank, Buffer) -> bool| {
                    let all = schedules.iter().map(|schedule| sends(schedule, wanted));
                    all.fold((0, 0), |most, own| (most.0.max(own.0), most.1.max(own.1)))
                };
                let (messages, sent) = busiest(&|_, _| true);
                let (_, wide) = busiest(&|_, buffer| buffer == Buffer::Scratch);
                let what = alloc::format!("{algorithm} on {size}");
                assert_near(&what, traffic.messages, messages, 3);
                assert_near(&what, traffic.sent, sent, 0);
                if algorithm.collective.reduces() {
                    assert_near(&what, traffic.wide, wide, call.count);
                }
            }
        }
    }

    #[test]
    fn local_ways_use_the_network_little() {
        let names: Vec<usize> = (0..32).map(|rank| rank / 8).collect();
        let layout = Layout::from_host_names(&names);
        for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
            let call = call(algorithm.collective, 16 * 32 * 64);
            let traffic = Traffic::of(algorithm, &call, 32);
            if !traffic.way.is_local() {
                continue;
            }
            let schedules = schedules(algorithm, call, &layout);
            for host in schedules.chunks(8) {
                let far = host.iter().map(|schedule| {
                    let away = |to, _| !layout.same_host(to, schedule.rank());
                    sends(schedule, away).1
                });
                let far: usize = far.sum();
                assert!(far <= 2 * traffic.sent, "{algorithm}: {far} of {}", traffic.sent);
            }
        }
    }
}
