//! Hierarchical: every host sums the inputs of its ranks, and sends only these sums to others.
//!
//! 1. The buffer is cut into shards. Each rank sends every carrier of its host the input of its
//!    shard, one chunk ahead.
//! 2. A carrier combines the sums of the hosts below its own with the inputs of its host, and sends
//!    them up a tree or a chain of hosts, which ends at the root's. Hosts are in fabric order.
//! 3. The carriers of the root's host send their sums to the root. With one shard the root itself
//!    carries it.
//!
//! Every chunk goes through these steps by itself. For a chunk a rank waits only for messages of
//! the same or an earlier chunk, from ranks below it or from its host. So no ranks wait in a
//! circle.
//!
//! The costs are those of h hosts of k ranks each. Steps: floor(log2 h) for a tree or h-1 for a
//! chain, 1 more for step 1, and 1 more for step 3 with several shards. Sent by each rank but the
//! root: the buffer once. Pipelined in chunks.
//!
//! Source: Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in
//! parallel computer networks to optimize collective operation performance", 2000, with shards.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use super::{binomial, linear, ring};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block, part};
use crate::cost::bill::Bill;
use crate::hosts::rooted::{self, Rooted, depth, ways};
use crate::hosts::{CARRIERS_MAX, Hierarchy, Spread, Team, is_ahead};
use crate::schedule::{Builder, Form, Schedule, Source};
use crate::wire::between_hosts;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Reduce,
    name: "hierarchical",
    needs: Needs::Links,
    pattern: Pattern::Levels(|call, layout, chunk| HIERARCHY.price(call, layout, chunk)),
    schedule: |plan| HIERARCHY.schedule(plan),
    stated: |call, layout| HIERARCHY.stated(call, layout),
    moved: Moved::sums,
    stays_on_rail: |call, layout| HIERARCHY.stays_on_rail(call, layout),
};

pub(crate) const HIERARCHY: Hierarchy = Hierarchy {
    ways: |layout| ways(layout, CARRIERS_MAX),
    bill,
    stated: stated_by,
    schedule: schedule_by,
    on_one_host: &linear::ALGORITHM,
};

/// Partial sums that a rank keeps for a lane, and chunks in a row that take the same lane. A rank
/// makes the next sum while earlier ones leave.
const SUMS: usize = 4;

fn stated_by(call: &Call, layout: &Layout, &Spread { shards, rail }: &Spread) -> Stated {
    let (_, most) = layout.ranks_per_host();
    let within = usize::from(most > 1) + usize::from(shards > 1);
    let sent = if layout.size() > 1 { call.count } else { 0 };
    Stated { steps: within + depth(layout.hosts(), rail), sent }
}

fn bill(call: &Call, layout: &Layout, spread: &Spread, chunk: usize) -> Bill {
    let (_, most) = layout.ranks_per_host();
    let within = [usize::from(most > 1) + usize::from(spread.shards > 1), most];
    let along = [&binomial::ALGORITHM, &ring::ALGORITHM];
    rooted::bill(along, call, layout, spread, chunk, within)
}

/// The form in which the carriers at a place send sums up. A rank alone sends its bare input.
fn sums_form(call: &Call, rooted: &Rooted<'_>, place: usize) -> Form {
    let is_alone = rooted.hosts.team(place).len() == 1 && rooted.below(place).is_empty();
    if is_alone { Form::Element } else { between_hosts(call) }
}

fn schedule_by(plan: &ScheduleParams<'_>, spread: &Spread) -> Schedule {
    let rooted = Rooted::new(&plan.call, plan.layout, spread);
    let place = rooted.hosts.place(plan.rank);
    let team = Team::new(rooted.hosts.team(place), plan.rank);
    let member = Member { plan, shards: spread.shards, rooted, place, team };
    let pieces = member.shard(0).len.div_ceil(plan.chunk);
    let lanes = plan.lanes(pieces.div_ceil(SUMS));
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes);
    let sums = member.sums(&mut steps, lanes);
    let ahead = usize::from(is_ahead(spread.shards));
    for lane in 0..lanes {
        let steps = steps.lane(lane);
        let own: Vec<usize> = (0..pieces).filter(|index| index / SUMS % lanes == lane).collect();
        own.iter().take(ahead).for_each(|index| member.give(steps, *index));
        for (at, index) in own.iter().enumerate() {
            own.get(at + ahead).into_iter().for_each(|index| member.give(steps, *index));
            member.combine(steps, *index, sums[index % sums.len()]);
            // Carriers send the root their inputs for the next chunk before the results of this.
            let done = at.checked_sub(ahead).map(|at| own[at]);
            done.into_iter().for_each(|index| member.take_results(steps, index));
        }
        for index in &own[own.len().saturating_sub(ahead)..] {
            member.take_results(steps, *index);
        }
    }
    steps.build()
}

/// One rank, on the host at `place`.
struct Member<'a> {
    plan: &'a ScheduleParams<'a>,
    shards: usize,
    rooted: Rooted<'a>,
    place: usize,
    team: Team,
}

impl Member<'_> {
    fn shard(&self, at: usize) -> Slice {
        block(Buffer::Input, self.plan.call.count, self.shards, at)
    }

    fn piece(&self, shard: usize, index: usize) -> Slice {
        part(self.shard(shard), index, self.plan.chunk)
    }

    /// The form of the sums that this rank sends, if it sends sums.
    fn sent_form(&self) -> Option<Form> {
        let is_carrier = self.team.place < self.shards;
        let of_carrier = || match self.rooted.above(self.place) {
            Some(_) => Some(sums_form(&self.plan.call, &self.rooted, self.place)),
            None => (self.plan.rank != self.rooted.root).then_some(Form::Accumulator),
        };
        if is_carrier { of_carrier() } else { None }
    }

    /// Reserves the sums of all lanes.
    fn sums(&self, steps: &mut Builder, lanes: usize) -> Vec<Slice> {
        let is_bare = self.team.size() == 1 && self.rooted.below(self.place).is_empty();
        let form = self.sent_form();
        let len = if is_bare || form.is_none() { 0 } else { self.shard(0).len };
        let len = len.min(self.plan.chunk);
        let form = form.unwrap_or(Form::Accumulator);
        (0..SUMS * lanes).map(|_| steps.sums(len, form)).collect()
    }

    /// Sends the carriers this rank's inputs for their shards.
    fn give(&self, steps: &mut Builder, index: usize) {
        steps.part();
        // Each rank begins with a different receiver.
        for at in 0..self.shards {
            let shard = (self.team.place + 1 + at) % self.shards;
            if shard != self.team.place {
                steps.send(self.team.ranks[shard], self.piece(shard, index));
            }
        }
        steps.part();
    }

    fn combine(&self, steps: &mut Builder, index: usize, sums: Slice) {
        let Self { plan, rooted, place, team, .. } = self;
        if team.place < self.shards {
            let own = self.piece(team.place, index);
            let rail = rooted.hosts.rail(team.place);
            let below = rooted.below(*place);
            let wires = below
                .iter()
                .map(|below| Source::Wire(rail[*below], sums_form(&plan.call, rooted, *below)));
            let inputs = team.ranks.iter().map(|rank| match *rank {
                rank if rank == plan.rank => Source::Local(own),
                rank => Source::Wire(rank, Form::Element),
            });
            let sources: Vec<Source> = inputs.chain(wires).collect();
            let to = rooted.above(*place).map_or(rooted.root, |above| rail[above]);
            if plan.rank == rooted.root {
                steps.reduce(Slice { buffer: Buffer::Output, ..own }, &sources);
            } else if sources.len() == 1 {
                steps.send(to, own);
            } else {
                let sum = sums.take(own.len);
                steps.reduce(sum, &sources);
                steps.send(to, sum);
            }
        }
    }

    /// Receives, on the root, the results of the carriers near it.
    fn take_results(&self, steps: &mut Builder, index: usize) {
        for shard in (0..self.shards).filter(|_| self.plan.rank == self.rooted.root) {
            if let Some(carrier) = self.rooted.near_root(shard) {
                let result = Slice { buffer: Buffer::Output, ..self.piece(shard, index) };
                steps.reduce(result, &[Source::Wire(carrier, Form::Accumulator)]);
            }
        }
    }
}
