//! The bill of a call: its latency, and the work of its ranks on links and CPUs.

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use super::rates::{
    CONGESTED_QUARTERS, LinkCost, MIXED_QUARTERS, NETWORK_PART, Rates, SWITCH_PS, TURN_PS,
    WOKEN_PS, longer_ps, partners_quarters,
};
use super::traffic::Traffic;
use crate::algorithm::{Algorithm, Pattern};
use crate::schedule::Form;
use crate::wire;

/// The properties of a layout that determine a price.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// The ranks that take part.
    pub(crate) layout: &'a Layout,
    pub(crate) hosts: usize,
    /// Ranks on the fullest host.
    pub(crate) ranks_per_host: usize,
    /// How often the host changes on the way around all ranks, in ring order.
    pub(crate) borders: usize,
    /// Whether ranks share CPUs.
    pub(crate) oversubscribed: bool,
    /// The rates of the links.
    pub(crate) rates: Rates,
}

impl<'a> Site<'a> {
    pub(super) fn of(layout: &'a Layout) -> Self {
        let (size, hosts) = (layout.size(), layout.hosts());
        let mut ranks = alloc::vec![0; hosts];
        let mut borders = 0;
        let ring = layout.ring();
        for place in 0..size {
            let (rank, next) = (ring.at(place), ring.at((place + 1) % size));
            ranks[layout.host(rank) as usize] += 1;
            borders += usize::from(!layout.same_host(rank, next));
        }
        let (ranks_per_host, oversubscribed) =
            (ranks.into_iter().max().unwrap_or(0), layout.occupancy().is_oversubscribed());
        Self { layout, hosts, ranks_per_host, borders, oversubscribed, rates: Rates::of(layout) }
    }

    /// How often the host changes on the way around all ranks, in the order in which a collective
    /// passes them. A scan passes them in the order of their numbers.
    fn borders_of(&self, collective: Collective) -> usize {
        if !matches!(collective, Collective::Scan | Collective::Exscan) {
            return self.borders;
        }
        let (size, layout) = (self.layout.size(), self.layout);
        let leaves = |rank: &usize| !layout.same_host(Rank::at(*rank), Rank::at((rank + 1) % size));
        (0..size).filter(leaves).count()
    }

    /// The ranks of `rail` are one of each host, or of each group of hosts, of `layout`.
    /// `ranks_per_host` such ranks of a host send at a time.
    pub(crate) fn between(layout: &Layout, rail: &'a Layout, ranks_per_host: usize) -> Self {
        let (hosts, oversubscribed) = (rail.size(), layout.occupancy().is_oversubscribed());
        let rates = Rates::of(layout);
        Self { layout: rail, hosts, ranks_per_host, borders: hosts, oversubscribed, rates }
    }
}

/// The cost of a call for each rank. All times are in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bill {
    /// Messages that wait for each other.
    pub(crate) steps: u128,
    /// The time for which those messages are under way.
    pub(crate) waiting: u128,
    /// The time for each of them to let another rank of the CPU run.
    pub(crate) switch_ps: u128,
    /// Those of them that wake a rank, where ranks share CPUs and wait for a network.
    pub(crate) woken: u128,
    /// The time for which the busiest rank is busy meanwhile, if it has a CPU of its own.
    pub(crate) busy: u128,
    /// The part of it in which a network moves bytes and no CPU does.
    pub(crate) network: u128,
    /// CPU time of a rank on average.
    pub(crate) work: u128,
}

impl Bill {
    /// This bill, and another one after it. Ranks take turns as in this one.
    pub(crate) const fn and(self, other: &Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            waiting: self.waiting + other.waiting,
            switch_ps: self.switch_ps,
            woken: self.woken + other.woken,
            busy: self.busy + other.busy,
            network: self.network + other.network,
            work: self.work + other.work,
        }
    }

    /// The bill of an algorithm without levels, if pipelines pass on `chunk` elements at a time.
    pub(crate) fn of(algorithm: &Algorithm, call: &Call, site: &Site<'_>, chunk: usize) -> Self {
        let (size, is_staged) = (site.layout.size(), algorithm.needs_staging());
        let traffic = Traffic::of(algorithm, call, site.layout);
        // In 128 bits, because an all-to-all at the largest scale overflows 64.
        let bytes = |form: Form| form.data_type(call).bytes() as u128;
        let sums = if site.hosts > 1 { wire::between_hosts(call) } else { Form::Accumulator };
        let wide = traffic.wide as u128 * (bytes(sums) - bytes(Form::Element));
        let carried = |elements: usize| elements as u128 * bytes(Form::Element) + wide;
        // A pipeline has to fill. Until then, at most the chain is under way.
        let filling = traffic.moved.saturating_add(traffic.steps.saturating_mul(chunk));
        let moved = carried(traffic.moved.max(traffic.chain.min(filling)));
        let pieces = algorithm.pieces(call, size, chunk);
        let Rates { far, combined_byte_ps, .. } = site.rates;
        let near = site.rates.within_host(algorithm, size, traffic.steps);
        // A piece is one step behind the previous piece.
        let steps = (traffic.steps + pieces - 1) as u128;
        let messages = (traffic.messages * pieces) as u128;
        let stays = moved * part_within(algorithm, call, site) / 1024;
        let load = Load { near, steps, messages, moved, stays };
        let Passage { waiting, busy, network, away, quarters } =
            load.passage(traffic.pattern, call, site);
        let combined = if is_staged {
            traffic.summed as u128 * bytes(Form::Element) * site.rates.read_byte_ps()
        } else {
            traffic.summed as u128 * bytes(Form::Accumulator) * combined_byte_ps
        };
        // On one host the measured choices hold without it.
        let climbs = if site.hosts > 1 { traffic.climbs(call, chunk) } else { 0 };
        let filling = climbs * bytes(Form::Accumulator) * combined_byte_ps;
        let of_both =
            |at: usize| (near.work_ps[at] * (1024 - away) + far.work_ps[at] * away) / 1024;
        let is_linked = algorithm.works_anywhere();
        let longer_ps = if is_linked { longer_ps(messages, moved) } else { 0 };
        let longer_ps = longer_ps * (1024 - away) / 1024;
        let [message_ps, byte_ps] = [of_both(0) + longer_ps, of_both(1)];
        let pieces = messages.max((traffic.moved / chunk) as u128);
        let combining = if is_staged && size > 2 {
            let [result_ps, rank_ps] = site.rates.read_work_ps();
            let results = (traffic.summed / size) as u128 * bytes(Form::Element);
            results * (result_ps + rank_ps * size as u128)
        } else {
            combined
        };
        let work = pieces * message_ps + carried(traffic.moved) * byte_ps + combining;
        let work = traffic.average(work, size) * quarters / 4;
        let switch_ps =
            if matches!(traffic.pattern, Pattern::Direct) { TURN_PS } else { SWITCH_PS };
        let [busy, network] = [busy + combined + filling, network].map(|each| each * quarters / 4);
        let woken = if leaves_ranks_idle(traffic.pattern, call.collective) { steps } else { 0 };
        Self { steps, waiting, switch_ps, woken, busy, network, work }
    }

    /// The time of the call in picoseconds, on ranks that may have to take turns on their CPUs.
    pub(crate) fn total(&self, layout: &Layout) -> u128 {
        let Self { steps, waiting, switch_ps, woken, busy, network, work } = *self;
        let occupancy = layout.occupancy();
        if !occupancy.is_oversubscribed() {
            return waiting + busy;
        }
        let of_cpu = |each: u128| each * occupancy.ranks as u128 / occupancy.cpus as u128;
        let turns = steps * of_cpu(switch_ps);
        if layout.hosts() <= 1 {
            return turns + busy.max(of_cpu(work));
        }
        if layout.is_one_machine() {
            return waiting + woken * WOKEN_PS + of_cpu(work) + network / NETWORK_PART;
        }
        // Messages take CPU time even if other CPUs are idle, and a network may be between the
        // hosts.
        let LinkCost { work_ps: [message_ps, _], .. } = Rates::of(layout).far;
        waiting.max(turns) + busy + of_cpu(work).max(steps * message_ps)
    }
}

/// Whether ranks have nothing to do for most of a short call: they wait for a root, or for those
/// next to them in a chain or a tree. Others send in every step.
const fn leaves_ranks_idle(pattern: Pattern, collective: Collective) -> bool {
    collective.has_root() || matches!(pattern, Pattern::Pipelines(_) | Pattern::Subtrees)
}

/// The messages of the busiest rank.
struct Load {
    /// The rates of links within its host.
    near: LinkCost,
    /// Messages that wait for each other.
    steps: u128,
    messages: u128,
    /// The bytes that it sends or receives, whichever is more.
    moved: u128,
    /// Those of them that stay on its host, unless messages are local.
    stays: u128,
}

/// The part of a rank's bytes that stays on its host, of 1024.
fn part_within(algorithm: &Algorithm, call: &Call, site: &Site<'_>) -> u128 {
    let (size, here) = (site.layout.size(), site.ranks_per_host);
    let [part, all] = match algorithm.pattern {
        _ if site.hosts == size => return 0,
        // The nearest partners are on the host. They exchange as much as they would without others.
        Pattern::Exchange => {
            let sent = |layout: &Layout| (algorithm.stated)(call, layout).sent;
            [sent(&Layout::apart(here)), sent(site.layout)]
        }
        _ => [here - 1, size - 1],
    };
    (part.min(all) as u128 * 1024).checked_div(all as u128).unwrap_or(0)
}

/// The passage of messages over links within hosts and between hosts. Times are in picoseconds.
struct Passage {
    /// The time for which messages that wait for each other are under way.
    waiting: u128,
    /// The time that the busiest rank needs for its messages.
    busy: u128,
    /// The part of it in which a network moves bytes and no CPU does.
    network: u128,
    /// The share of messages and bytes that go to other hosts, of 1024.
    away: u128,
    /// How much slower links are where both kinds mix, in quarters.
    quarters: u128,
}

impl Load {
    fn passage(&self, pattern: Pattern, call: &Call, site: &Site<'_>) -> Passage {
        let Self { near, steps, messages, moved, stays } = *self;
        if site.hosts <= 1 {
            let busy = messages * near.message_ps + moved * near.byte_ps;
            let waiting = steps * near.latency_ps;
            return Passage { waiting, busy, network: 0, away: 0, quarters: 4 };
        }
        let borders = site.borders_of(call.collective);
        if pattern.is_local() && borders < site.layout.size() {
            return self.along(pattern, call, site, borders);
        }
        let congested = match pattern {
            // Two ranks have no other partners.
            _ if site.layout.size() == 2 => 4,
            // Nobody else sends.
            Pattern::AtRoot
                if matches!(call.collective, Collective::Broadcast | Collective::Scatter) =>
            {
                4
            }
            Pattern::Direct | Pattern::AtRoot => CONGESTED_QUARTERS,
            Pattern::Exchange | Pattern::Rounds(_) => partners_quarters(site.oversubscribed),
            Pattern::InTurn if site.oversubscribed => partners_quarters(true),
            // Until the root has scattered the blocks, the others have little to pass on.
            Pattern::Ring if call.collective == Collective::Broadcast && site.oversubscribed => {
                partners_quarters(true)
            }
            Pattern::Subtrees => CONGESTED_QUARTERS,
            Pattern::Ring
            | Pattern::InTurn
            | Pattern::Pipelines(_)
            | Pattern::Levels(_)
            | Pattern::Variants(_) => 4,
        };
        // Only the root of a gather or a scatter sends or receives for long.
        let is_of_root = matches!(call.collective, Collective::Gather | Collective::Scatter);
        let users = if is_of_root { 1 } else { site.ranks_per_host };
        let LinkCost { latency_ps, message_ps, .. } = site.rates.far;
        let byte_ps = site.rates.congested_byte_ps(users as u128, congested);
        // A port may pass a byte sooner than a link within the host does.
        let passes = match pattern.is_at_once() {
            true => (moved * byte_ps).max(stays * near.byte_ps),
            false => moved * byte_ps + stays * near.byte_ps.saturating_sub(byte_ps),
        };
        let busy = messages * message_ps + passes;
        let network = moved * site.rates.network_byte_ps(byte_ps);
        Passage { waiting: steps * latency_ps, busy, network, away: 1024, quarters: 4 }
    }

    /// The passage where most messages stay on a host. One or two of its ranks use the network, for
    /// all that they send or for all that they receive.
    fn along(&self, pattern: Pattern, call: &Call, site: &Site<'_>, borders: usize) -> Passage {
        let Self { near, steps, messages, moved, .. } = *self;
        let far = steps.min(2 * borders as u128);
        let users = borders.div_ceil(site.hosts) as u128;
        // Several trees cross borders at different places.
        let is_manifold = matches!(pattern, Pattern::Pipelines(2..)) && site.hosts > 2;
        let halves = if is_manifold { 3 } else { 2 };
        let is_slower = site.oversubscribed && call.collective != Collective::Broadcast;
        let LinkCost { latency_ps, message_ps, .. } = site.rates.far;
        let byte_ps = site.rates.far_byte_ps(users) * halves / 2;
        Passage {
            waiting: far * latency_ps + (steps - far) * near.latency_ps,
            // The slower ones of the links on the way hold up all others.
            busy: messages * message_ps + moved * byte_ps.max(near.byte_ps),
            network: moved * site.rates.network_byte_ps(byte_ps),
            away: (512 * users * halves).div_ceil(site.ranks_per_host as u128).min(1024),
            quarters: if is_slower { MIXED_QUARTERS } else { 4 },
        }
    }
}
