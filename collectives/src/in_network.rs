//! The parts that algorithms with a provider in the network share: the groups of a call, their
//! members, and the price.
//!
//! A call is divided among the groups, and each has a lane of its own. The members of a group are
//! carriers, one on each host (`Layout::carriers`). The ranks of a host give a member their inputs.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use ringfold_topology::{Aggregation, Layout};
use ringfold_types::limits::CHANNELS_MAX;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice, Wire};

use crate::algorithm::{ScheduleParams, Stated};
use crate::chunk::{block, part};
use crate::cost::bill::Bill;
use crate::cost::rates::{Rates, TURN_PS};
use crate::group::{Group, Membership};
use crate::hosts::price::Within;
use crate::hosts::{Hosts, Team};
use crate::offload::offload;
use crate::schedule::{Builder, Form, Source};
use crate::wire::between_hosts;

/// The groups of one call.
pub(crate) struct Network<'a> {
    pub(crate) layout: &'a Layout,
    call: &'a Call,
    hosts: Hosts<'a>,
    aggregation: Cow<'a, Aggregation>,
    /// The numbers and rails of the groups, by lane.
    rails: Vec<(usize, usize)>,
}

impl<'a> Network<'a> {
    /// The groups of `call`. Without aggregators in the layout, those of one aggregator.
    pub(crate) fn new(call: &'a Call, layout: &'a Layout) -> Self {
        let aggregation = match layout.aggregation() {
            Some(aggregation) => Cow::Borrowed(aggregation),
            None => Cow::Owned(Aggregation {
                chunk_bytes: usize::MAX,
                ..Aggregation::star(layout.hosts())
            }),
        };
        let carriers = layout.carriers().len().clamp(1, aggregation.groups);
        let hosts = Hosts::new(layout, carriers);
        let groups = if layout.hosts() > 1 && call.collective != Collective::Barrier {
            aggregation.groups.min(CHANNELS_MAX.into())
        } else {
            1
        };
        let rails = (0..groups).map(|group| (group, group % carriers));
        let rails = match call.collective {
            Collective::Reduce if layout.hosts() > 1 => {
                let place = hosts.place(call.root);
                rails.filter(|(_, rail)| hosts.rail(*rail)[place] == call.root).collect()
            }
            _ => rails.collect(),
        };
        Self { layout, call, hosts, aggregation, rails }
    }

    /// Whether each group has its members. A group of a reduce has the root as a member.
    pub(crate) fn is_complete(&self) -> bool {
        !self.rails.is_empty()
    }

    pub(crate) fn lanes(&self) -> usize {
        self.rails.len()
    }

    pub(crate) fn window(&self) -> usize {
        self.aggregation.window
    }

    /// The elements of a lane, of the whole input.
    pub(crate) fn block(&self, lane: usize) -> Slice {
        block(Buffer::Input, self.call.count, self.lanes(), lane)
    }

    /// The form in which members hand over elements.
    fn form(&self) -> Form {
        let (_, most) = self.layout.ranks_per_host();
        let has_sums = most > 1 || self.aggregation.tree.depth() > 1;
        let is_wide = between_hosts(self.call) == Form::Accumulator;
        let is_short = self.call.data_type.is_short_float();
        if has_sums && is_wide && is_short { Form::Accumulator } else { Form::Element }
    }

    /// The ranks of the host of `rank`, with the member of a lane first.
    pub(crate) fn team(&self, lane: usize, rank: Rank) -> Team {
        let place = self.hosts.place(rank);
        let is_alone = self.layout.hosts() == 1 && self.call.collective == Collective::Reduce;
        let member =
            if is_alone { self.call.root } else { self.hosts.rail(self.rails[lane].1)[place] };
        let others = self.layout.ranks_on(self.layout.host(rank)).iter();
        let others = others.copied().filter(|other| *other != member);
        Team::new(core::iter::once(member).chain(others).collect(), rank)
    }

    /// Makes `rank`, a member, part of the group of the lane that `steps` writes. It hands over
    /// `chunks` chunks of at most `longest` elements.
    pub(crate) fn join(
        &self,
        steps: &mut Builder,
        lane: usize,
        rank: Rank,
        (chunks, longest): (usize, usize),
    ) {
        if self.layout.hosts() > 1 {
            let (number, rail) = self.rails[lane];
            let members = self.hosts.kept_rail(rail);
            let membership =
                Membership { members, me: self.hosts.place(rank), tree: &self.aggregation.tree };
            let root = self.call.collective == Collective::Reduce;
            let root = root.then(|| self.hosts.place(self.call.root));
            let ways = (self.window(), self.form());
            let call = self.call.collective;
            let reserve = |len, form| steps.sums(len, form);
            let group = Group::new(call, reserve, membership, ways, root, (chunks, longest));
            let group = group.numbered(number);
            steps.group(group);
        }
    }

    /// Elements of a chunk, if pipelines pass on `chunk` at a time.
    pub(crate) fn chunk(&self, chunk: usize) -> usize {
        let bytes = self.form().data_type(self.call).bytes();
        chunk.min(self.aggregation.chunk_bytes / bytes).max(1)
    }
}

/// The ranks that are the members of each group of `layout`, by number. The groups of all calls
/// have these members.
#[must_use]
pub fn members(layout: &Layout) -> Vec<Vec<Rank>> {
    let call = Call {
        collective: Collective::AllReduce,
        count: 0,
        data_type: DataType::F32,
        op: ReduceOp::Sum,
        root: Rank(0),
        wire: Wire::default(),
    };
    let network = Network::new(&call, layout);
    network.rails.iter().map(|(_, rail)| network.hosts.rail(*rail).to_vec()).collect()
}

/// One rank in one lane of a reduction.
pub(crate) struct LaneRank<'n> {
    network: &'n Network<'n>,
    pub(crate) team: Team,
    block: Slice,
    chunk: usize,
    /// Memory for the sums of this host. A sum stays until the result of its chunk is there.
    sums: Vec<Slice>,
}

impl<'n> LaneRank<'n> {
    pub(crate) fn new(
        steps: &mut Builder,
        network: &'n Network<'n>,
        plan: &ScheduleParams<'_>,
        lane: usize,
    ) -> Self {
        let (team, block) = (network.team(lane, plan.rank), network.block(lane));
        let chunk = network.chunk(plan.chunk);
        let longest = chunk.min(block.len);
        let (is_member, form) = (team.place == 0, network.form());
        if is_member {
            network.join(steps, lane, plan.rank, (block.len.div_ceil(chunk), longest));
        }
        let has_sums = team.size() > 1 || form == Form::Accumulator;
        let has_sums = is_member && has_sums && network.layout.hosts() > 1;
        let sums = if has_sums { network.window() + 1 } else { 0 };
        let sums = (0..sums).map(|_| steps.sums(longest, form)).collect();
        Self { network, team, block, chunk, sums }
    }

    pub(crate) fn pieces(&self) -> usize {
        self.block.len.div_ceil(self.chunk)
    }

    pub(crate) fn is_member(&self) -> bool {
        self.team.place == 0
    }

    fn own(&self, index: usize) -> Slice {
        part(self.block, index, self.chunk)
    }

    /// The place of the result of a piece.
    pub(crate) fn result(&self, index: usize) -> Slice {
        Slice { buffer: Buffer::Output, ..self.own(index) }
    }

    /// Gives the member this rank's input of a piece; as the member, combines those of its host and
    /// hands over their sum. The result goes to `dst`.
    pub(crate) fn give(&self, steps: &mut Builder, index: usize, dst: Slice) {
        let own = self.own(index);
        steps.part();
        if !self.is_member() {
            return steps.send(self.team.ranks[0], own);
        }
        let others = self.team.ranks[1..].iter().map(|rank| Source::Wire(*rank, Form::Element));
        let sources: Vec<Source> = core::iter::once(Source::Local(own)).chain(others).collect();
        if self.network.layout.hosts() == 1 {
            return steps.reduce(dst, &sources);
        }
        let src = match self.sums.get(index % self.sums.len().max(1)) {
            Some(sum) => sum.take(own.len),
            None => own,
        };
        if src != own {
            steps.reduce(src, &sources);
        }
        offload(steps, src, dst);
    }

    /// Passes the result of a piece on to all ranks of the host.
    pub(crate) fn share(&self, steps: &mut Builder, index: usize) {
        steps.part();
        let result = self.result(index);
        match self.is_member() {
            true => self.team.ranks[1..].iter().for_each(|rank| steps.send(*rank, result)),
            false => steps.recv(self.team.ranks[0], result),
        }
        steps.part();
    }
}

/// The cost of a call. The busiest rank is a member on the fullest host.
pub(crate) fn stated(call: &Call, layout: &Layout) -> Stated {
    let network = Network::new(call, layout);
    let (_, most) = layout.ranks_per_host();
    let others = most.saturating_sub(1);
    let is_apart = layout.hosts() > 1;
    let levels = if is_apart { 2 * network.aggregation.tree.depth() } else { 0 };
    let (ways, handed) = match call.collective {
        Collective::Barrier => (2, 1),
        Collective::AllReduce => (2, call.count),
        _ => (1, call.count),
    };
    let within = if most > 1 { ways } else { 0 };
    let shared = if ways == 2 { others * handed } else { 0 };
    let sent =
        if is_apart { handed + shared } else { shared.max(if most > 1 { handed } else { 0 }) };
    Stated { steps: levels + within, sent }
}

/// The price of a call in picoseconds, if pipelines pass on `chunk` elements at a time.
///
/// A host sends its data once and takes the result once. An aggregator that has less bandwidth than
/// all of its children takes longer.
pub(crate) fn price(call: &Call, layout: &Layout, chunk: usize) -> u128 {
    let network = Network::new(call, layout);
    let Aggregation { tree, latency_ps, byte_ps, .. } = &*network.aggregation;
    let (_, most) = layout.ranks_per_host();
    let chunk = network.chunk(chunk);
    let lanes = network.lanes().max(1);
    let pieces = call.count.div_ceil(chunk).max(1);
    let rates = Rates::of(layout);
    let bytes = (call.count * network.form().data_type(call).bytes()) as u128;
    let depth = tree.depth() as u128;
    let moved = bytes * rates.far_byte_ps(lanes as u128) / lanes as u128;
    let combined = bytes * u128::from(*byte_ps);
    let message_ps = rates.far.message_ps;
    let steps = 2 * depth;
    let between = Bill {
        steps,
        waiting: steps * rates.far.latency_ps + depth * u128::from(*latency_ps),
        switch_ps: TURN_PS,
        woken: steps,
        busy: 2 * pieces as u128 * message_ps + moved.max(combined),
        network: moved.max(combined).saturating_sub(bytes * rates.far.work_ps[1] / 2),
        work: (2 * pieces as u128 * rates.far.work_ps[0] + 2 * bytes * rates.far.work_ps[1] / 2)
            * layout.hosts() as u128
            / layout.size() as u128,
    };
    if most <= 1 {
        return between.total(layout);
    }
    let ways = if call.collective == Collective::Reduce { 1 } else { 2 };
    let count = call.count.max(1);
    let within = Within {
        steps: ways,
        messages: ways * (most - 1) * pieces,
        moved: (most - 1) * count,
        average: ways * count,
        combined: if call.collective.reduces() { most * count } else { 0 },
    };
    between.and(&within.bill(call, layout, between.switch_ps, chunk)).total(layout)
}

/// Whether the aggregators of `layout` can perform a call.
pub(crate) fn is_possible(call: &Call, layout: &Layout) -> bool {
    layout.aggregation().is_some() && layout.hosts() > 1 && Network::new(call, layout).is_complete()
}
