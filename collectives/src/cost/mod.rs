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
use ringfold_types::{Call, Collective};

use crate::algorithm::Algorithm;
use crate::allreduce::hierarchical::{Groups, Levels};
use crate::pattern::host_tree::RootedTree;
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
    LinkCost { latency_ps: 500_000, message_ps: 100_000, byte_ps: 100, work_ps: [90_000, 100] };

/// Tokens between ranks of one host whose buffers are windows, and what they read and store there.
pub const IN_WINDOWS: LinkCost =
    LinkCost { latency_ps: 245_000, message_ps: 62_000, byte_ps: 100, work_ps: [50_000, 20] };

/// Tokens between ranks of one host that pass ordinary buffers through stages, after each of which
/// another's memory is read first; and what they copy there and take.
pub const STAGED: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 200_000, byte_ps: 44, work_ps: [200_000, 50] };

/// The same among more than two ranks, which tell each other at once.
pub const TOLD: LinkCost = LinkCost { work_ps: [115_000, 50], ..STAGED };

/// Between two ranks that trade stages: what one writes is in its caches already.
pub const TRADED: LinkCost =
    LinkCost { latency_ps: 454_000, message_ps: 150_000, byte_ps: 33, work_ps: [200_000, 50] };

/// Bytes of a message between ranks of one host that fit the cache line which announces it,
const SHORT_BYTES: u128 = 48;

/// and what a longer one costs more in CPU time, in picoseconds: where it lies has left the nearer
/// caches since the last time, as ranks that share CPUs share those too.
const LONGER_PS: u128 = 300_000;

/// Between hosts: TCP over a switch, 20 Gbit/s for all ranks of a host together.
pub const ACROSS_HOSTS: LinkCost = LinkCost {
    latency_ps: 20_000_000,
    message_ps: 2_000_000,
    byte_ps: 400,
    work_ps: [6_000_000, 300],
};

/// From one rank to another of the same CPU, in picoseconds, where everyone waits for everyone,
const TURN_PS: u128 = 800_000;

/// and along chains and trees: who waits yields, at times to others that wait.
const SWITCH_PS: u128 = 2_200_000;

/// From one host to another that is a container of the same machine, with CPUs for all ranks,
const NEIGHBOUR_PS: u128 = 4_000_000;

/// and where they share CPUs: who waits sleeps by then.
const CONTAINER_PS: u128 = 12_000_000;

/// To wake a rank of a crowded host that waited while others waited for the network: it sleeps by
/// then.
const WOKEN_PS: u128 = 20_000_000;

/// How much slower, in quarters, an all-reduce along links within hosts and between them in turn is
/// where ranks share CPUs: the least that was measured.
const MIXED_QUARTERS: u128 = 6;

/// Combining one byte that arrives, in cache: 20 GB/s, in picoseconds.
const COMBINED_BYTE_PS: u128 = 50;

/// Reading one byte of a stage to combine it, in one pass with those of all ranks.
const READ_BYTE_PS: u128 = 22;

/// The same in CPU time, with more than two ranks: for one byte of the result, and for each rank.
const READ_WORK_PS: [u128; 2] = [150, 10];

/// How much slower links are, in quarters, when everyone sends to everyone through the switches and
/// many send to one.
const CROWDED_QUARTERS: u128 = 5;

/// And where the ranks that send to one share CPUs: on a line of 1 Gbit/s for each, what is lost
/// there comes late.
const DENSE_QUARTERS: u128 = 8;

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
            _ if algorithm.needs_stage() => Self::Direct,
            (_, "one_shot" | "two_shot" | "direct" | "window" | "attached") => Self::Direct,
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
    /// Sent, or tells that are heard.
    messages: usize,
    /// Sent or taken, whichever is more; through stages, copied there and taken.
    moved: usize,
    /// Of this, inputs and partial sums rather than results. Through stages it is no part of it,
    /// but all that is read to be combined, be it this rank's own.
    summed: usize,
    /// Of this, in accumulators.
    wide: usize,
    /// Moved by all ranks together.
    total: usize,
}

impl Traffic {
    fn of(algorithm: &Algorithm, call: &Call, layout: &Layout) -> Self {
        let (way, size) = (Way::of(algorithm, call), layout.size());
        let stated = (algorithm.stated)(call, layout);
        let (steps, sent) = (stated.steps, stated.sent);
        let (moved, summed) = match (call.collective, algorithm.name) {
            // The root takes more than anyone sends.
            (Collective::Reduce, "binomial") => {
                let (_, children) = RootedTree::new(layout, call.root).extent();
                let taken = call.count * children;
                (taken, taken)
            }
            (Collective::AllReduce, "one_shot" | "recursive_doubling") => (sent, sent),
            // Others' blocks, and in the end everyone's, go through a stage.
            (Collective::AllReduce, "staged") => (2 * call.count - call.count / size, call.count),
            (Collective::AllReduce, "staged_one_shot") => (call.count, call.count * size),
            (Collective::AllGather, "staged") => (call.count * size, 0),
            (Collective::ReduceScatter, "staged") => (call.count * (size - 1), call.count * size),
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

/// What of a layout the price depends on.
#[derive(Clone, Copy, Debug)]
struct Site<'a> {
    /// The ranks that take part.
    layout: &'a Layout,
    hosts: usize,
    /// Ranks on the fullest host.
    crowd: usize,
    /// How often the host changes on the way around the ranks, in the order of rings.
    borders: usize,
    /// Whether ranks share CPUs.
    is_dense: bool,
}

impl<'a> Site<'a> {
    fn of(layout: &'a Layout) -> Self {
        let (size, hosts) = (layout.size(), layout.hosts());
        let mut ranks = alloc::vec![0; hosts];
        let mut borders = 0;
        let ring = layout.ring();
        for place in 0..size {
            let (rank, next) = (ring.at(place), ring.at((place + 1) % size));
            ranks[layout.host(rank) as usize] += 1;
            borders += usize::from(!layout.same_host(rank, next));
        }
        Self {
            layout,
            hosts,
            crowd: ranks.into_iter().max().unwrap_or(0),
            borders,
            is_dense: layout.crowd().is_dense(),
        }
    }
}

/// What `call` would take by `algorithm` if pipelines pass on `chunk` elements at a time.
///
/// # Panics
/// If `layout` has no ranks.
#[must_use]
pub fn price(algorithm: &Algorithm, call: &Call, layout: &Layout, chunk: usize) -> Duration {
    let bill = if algorithm.is_hierarchical() {
        hierarchical(call, layout, chunk)
    } else {
        Bill::of(algorithm, call, &Site::of(layout), chunk)
    };
    let time = bill.total(layout);
    Duration::from_nanos(u64::try_from(time / 1000).unwrap_or(u64::MAX))
}

/// The time of an all-reduce between the hosts, in picoseconds. Only the carriers of shards take
/// part there.
pub(crate) fn between_hosts(levels: &Levels, call: &Call, layout: &Layout) -> u128 {
    between(levels, call, layout, usize::MAX).total(layout)
}

/// Between leaf groups, or between hosts, as `levels.rail` does, and within groups as two shots.
fn between(levels: &Levels, call: &Call, layout: &Layout, chunk: usize) -> Bill {
    let Levels { shards, rail, rail_call, .. } = levels;
    let (is_dense, size) = (layout.crowd().is_dense(), levels.units());
    let layout_of_rail = Layout::apart(size);
    let site =
        Site { layout: &layout_of_rail, hosts: size, crowd: *shards, borders: size, is_dense };
    let bill = Bill::of(rail.algorithm(), rail_call, &site, chunk);
    let work = bill.work * (size * levels.parts() * shards) as u128 / layout.size() as u128;
    let bill = Bill { work, ..bill };
    match levels.groups {
        Some(groups) => bill.and(&in_group(levels, groups, call, layout)),
        None => bill,
    }
}

/// Two shots within each leaf group.
///
/// They take longer for each byte than a ring does, since many send to one. A level of groups saves
/// steps, and so wins for shorter messages. For longer ones the ring between all hosts remains: in
/// fabric order a rank sends as many bytes there, and each group sends hardly more across spines:
/// twice the buffer, of which groups as a level spare the part of one group.
fn in_group(levels: &Levels, groups: Groups, call: &Call, layout: &Layout) -> Bill {
    let bytes = |form: Form| form.data_type(call).bytes() as u128;
    // Carriers hand on sums of their hosts, if these have several ranks.
    let form = if levels.most > 1 { Form::Accumulator } else { Form::Element };
    let [handed_on, results] = [groups.parts - 1, groups.most - 1].map(|others| others as u128);
    let part = levels.rail_call.count as u128;
    let combined = results * part * bytes(Form::Accumulator) * COMBINED_BYTE_PS;
    let moved = part * (handed_on * bytes(form) + results * bytes(Form::Element));
    let is_dense = layout.crowd().is_dense();
    let crowded = if is_dense { DENSE_QUARTERS } else { CROWDED_QUARTERS };
    let all_moved = moved * levels.shards as u128 * crowded / 4;
    let messages = handed_on + results;
    let [message_ps, byte_ps] = ACROSS_HOSTS.work_ps;
    let work = messages * message_ps + moved * byte_ps + combined;
    Bill {
        steps: 2,
        waiting: 2 * ACROSS_HOSTS.latency_ps,
        switch_ps: TURN_PS,
        busy: messages * ACROSS_HOSTS.message_ps + all_moved * ACROSS_HOSTS.byte_ps + combined,
        work: work * (levels.hosts * levels.shards) as u128 / layout.size() as u128,
    }
}

/// Within hosts as two shots, and between them as `between`.
fn hierarchical(call: &Call, layout: &Layout, chunk: usize) -> Bill {
    let levels = Levels::of(call, layout);
    let Levels { most, shards, .. } = levels;
    let between = between(&levels, call, layout, chunk);
    if most <= 1 {
        return between;
    }
    let bytes = |form: Form| form.data_type(call).bytes() as u128;
    let (shard, others) = ((call.count / shards) as u128, (shards - 1 + most - 1) as u128);
    let combined = (most - 1) as u128 * shard * bytes(Form::Accumulator) * COMBINED_BYTE_PS;
    let moved = others * shard * bytes(Form::Element);
    let within = others * SAME_HOST.message_ps + moved * SAME_HOST.byte_ps + combined;
    let woken = if layout.crowd().is_dense() { 2 * WOKEN_PS } else { 0 };
    // Everyone gives away its input and takes the result, but for its own shard.
    let [message_ps, byte_ps] = SAME_HOST.work_ps;
    let message_ps = message_ps + longer_ps(others, moved);
    let average = 2 * (most - 1) as u128 * shards as u128 * shard / most as u128;
    let messages = others.max(others * shard / chunk as u128);
    let work = messages * message_ps + average * bytes(Form::Element) * byte_ps + combined;
    between.and(&Bill {
        steps: 2,
        waiting: 2 * SAME_HOST.latency_ps,
        switch_ps: between.switch_ps,
        busy: within + woken,
        work,
    })
}

/// What each of so many messages within a host costs more in CPU time, if they are longer than
/// short, with so many bytes in all.
const fn longer_ps(messages: u128, bytes: u128) -> u128 {
    if bytes > messages * SHORT_BYTES { LONGER_PS } else { 0 }
}

/// What a call takes of each rank, in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Bill {
    /// Messages that wait for each other,
    steps: u128,
    /// how long they are under way,
    waiting: u128,
    /// and to let another rank of the CPU run for each.
    switch_ps: u128,
    /// What the busiest rank does meanwhile, with a CPU of its own.
    busy: u128,
    /// CPU time of a rank on average.
    work: u128,
}

impl Bill {
    /// This, and another one after it; ranks take turns as in this one.
    const fn and(self, other: &Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            waiting: self.waiting + other.waiting,
            switch_ps: self.switch_ps,
            busy: self.busy + other.busy,
            work: self.work + other.work,
        }
    }

    fn of(algorithm: &Algorithm, call: &Call, site: &Site<'_>, chunk: usize) -> Self {
        let size = site.layout.size();
        let traffic = Traffic::of(algorithm, call, site.layout);
        // In 128 bits, since all to all at the largest scale is more than 64 hold.
        let bytes = |form: Form| form.data_type(call).bytes() as u128;
        let wide = traffic.wide as u128 * (bytes(Form::Accumulator) - bytes(Form::Element));
        let carried = |elements: usize| elements as u128 * bytes(Form::Element) + wide;
        // A pipeline has to be filled; before that, no more than the chain is under way.
        let filling = traffic.moved.saturating_add(traffic.steps.saturating_mul(chunk));
        let moved = carried(traffic.moved.max(traffic.chain.min(filling)));
        let pieces = if algorithm.needs_stage() { pieces(call, size, chunk).max(1) } else { 1 };
        // A piece is one step behind the piece before.
        let steps = (traffic.steps + pieces - 1) as u128;
        let messages = (traffic.messages * pieces) as u128;
        let near = match algorithm {
            _ if algorithm.needs_windows() => IN_WINDOWS,
            // With one turn for each piece.
            _ if algorithm.needs_stage() && size == 2 && traffic.steps == 1 => TRADED,
            _ if algorithm.needs_stage() && size > 2 => TOLD,
            _ if algorithm.needs_stage() => STAGED,
            _ => SAME_HOST,
        };
        // Of its messages and bytes, so many in 1024 go to other hosts.
        let mut away = 0;
        let mut quarters = 4;
        let (waiting, busy) = if site.hosts <= 1 {
            (steps * near.latency_ps, messages * near.message_ps + moved * near.byte_ps)
        } else if traffic.way.is_local() && site.borders < size {
            // Most messages stay on a host, and one or two of its ranks use the network: for all
            // that they send, or all that they take.
            let far = steps.min(2 * site.borders as u128);
            let users = site.borders.div_ceil(site.hosts) as u128;
            // Two trees cross borders at different places.
            let is_twofold = algorithm.name == "double_tree" && site.hosts > 2;
            let halves = if is_twofold { 3 } else { 2 };
            let waiting = far * ACROSS_HOSTS.latency_ps + (steps - far) * near.latency_ps;
            let is_slower = site.is_dense && call.collective == Collective::AllReduce;
            quarters = if is_slower { MIXED_QUARTERS } else { 4 };
            away = (512 * users * halves).div_ceil(site.crowd as u128).min(1024);
            let bytes = moved * ACROSS_HOSTS.byte_ps * users * halves / 2;
            (waiting, messages * ACROSS_HOSTS.message_ps + bytes)
        } else {
            away = 1024;
            let crowded = match traffic.way {
                Way::Direct if site.is_dense => DENSE_QUARTERS,
                Way::Direct | Way::Exchange => CROWDED_QUARTERS,
                Way::Blocks | Way::Pipeline(_) => 4,
            };
            let bytes = moved * ACROSS_HOSTS.byte_ps * site.crowd as u128 * crowded / 4;
            (steps * ACROSS_HOSTS.latency_ps, messages * ACROSS_HOSTS.message_ps + bytes)
        };
        let combined = if algorithm.needs_stage() {
            traffic.summed as u128 * bytes(Form::Element) * READ_BYTE_PS
        } else {
            traffic.summed as u128 * bytes(Form::Accumulator) * COMBINED_BYTE_PS
        };
        let of_both =
            |at: usize| (near.work_ps[at] * (1024 - away) + ACROSS_HOSTS.work_ps[at] * away) / 1024;
        let longer_ps = if near == SAME_HOST { longer_ps(messages, moved) } else { 0 };
        let longer_ps = longer_ps * (1024 - away) / 1024;
        let [message_ps, byte_ps] = [of_both(0) + longer_ps, of_both(1)];
        let pieces = messages.max((traffic.moved / chunk) as u128);
        let combining = if algorithm.needs_stage() && size > 2 {
            let [result_ps, rank_ps] = READ_WORK_PS;
            let results = (traffic.summed / size) as u128 * bytes(Form::Element);
            results * (result_ps + rank_ps * size as u128)
        } else {
            combined
        };
        let work = pieces * message_ps + carried(traffic.moved) * byte_ps + combining;
        let work = traffic.average(work, size) * quarters / 4;
        let switch_ps = if traffic.way == Way::Direct { TURN_PS } else { SWITCH_PS };
        Self { steps, waiting, switch_ps, busy: (busy + combined) * quarters / 4, work }
    }

    /// How long the call takes on ranks that may have to take turns on their CPUs.
    fn total(&self, layout: &Layout) -> u128 {
        let Self { steps, waiting, switch_ps, busy, work } = *self;
        let crowd = layout.crowd();
        // Containers of one machine are not far from each other.
        let one_machine = layout.hosts() > 1 && crowd.ranks == layout.size();
        if !crowd.is_dense() {
            let near = if one_machine { waiting.min(steps * NEIGHBOUR_PS) } else { waiting };
            return near + busy;
        }
        let of_cpu = |each: u128| each * crowd.ranks as u128 / crowd.cpus as u128;
        let turns = steps * of_cpu(switch_ps);
        if layout.hosts() <= 1 {
            return turns + busy.max(of_cpu(work));
        }
        // What they send takes CPU time, be it in vain that others are free; and a network may be
        // between them all the same.
        let waiting = if one_machine { steps * CONTAINER_PS } else { waiting };
        let waiting = waiting.max(turns);
        waiting + busy + of_cpu(work).max(steps * ACROSS_HOSTS.work_ps[0])
    }
}

#[cfg(test)]
mod tests;
