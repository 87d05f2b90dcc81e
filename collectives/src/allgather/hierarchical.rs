//! Hierarchical: every block enters each other host once, and ranks of a host pass it on there.
//!
//! 1. The blocks of a host are divided among its carriers (`hosts::strands`). A rank that carries
//!    nothing hands parts of its block over to the carriers.
//! 2. The carriers of a shard, one on each host, gather what all of them carry. For long blocks
//!    they use a ring in fabric order. For short blocks they use `bruck`, and one carrier may have
//!    all blocks of its host.
//! 3. Each carrier sends what it gathers to all other ranks of its host. With a ring it does so
//!    turn by turn, while the next turn's blocks are under way.
//!
//! So every host receives each block of other hosts once, however many ranks it has. In a turn of
//! the ring a rank waits only for messages of the same or an earlier turn.
//!
//! The costs are those of h hosts of k ranks each, with s carriers. Steps: those of step 2 on h
//! ranks, 1 more for step 3, and 1 more for step 1 if s is less than k. Sent by a carrier: (h-1)k/s
//! blocks to other hosts and (k-1)hk/s blocks within its host. Pipelined in chunks.
//!
//! Source: Traeff, "Efficient allgather for regular SMP-clusters", 2006.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::{bruck, direct, ring};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{blocks_of, part};
use crate::cost::bill::Bill;
use crate::hosts::strands::{self, Strands, block_of, common, cut, lens, ways};
use crate::hosts::{Hierarchy, Hosts, Rail, Spread, Team, hand_out, hand_out_steps, runs_together};
use crate::pattern::dissemination::{distances, rounds};
use crate::pattern::ring::{after, before};
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "hierarchical",
    needs: Needs::Links,
    pattern: Pattern::Levels(|call, layout, chunk| HIERARCHY.price(call, layout, chunk)),
    schedule: |plan| HIERARCHY.schedule(plan),
    stated: |call, layout| HIERARCHY.stated(call, layout),
    moved: Moved::results,
    stays_on_rail: |call, layout| HIERARCHY.stays_on_rail(call, layout),
};

pub(crate) const HIERARCHY: Hierarchy = Hierarchy {
    ways: |layout| ways(layout, usize::MAX),
    bill,
    stated: stated_by,
    schedule: schedule_by,
    on_one_host: &direct::ALGORITHM,
};

/// Chunks of a run that go around together, as one message.
const TOGETHER: usize = 4;

/// The cost of a carrier on the fullest host. It is an upper bound where hosts differ in size.
fn stated_by(call: &Call, layout: &Layout, &Spread { shards, rail }: &Spread) -> Stated {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let [strand, all] = lens(call.count, layout, shards);
    let handed_over = usize::from(most > shards);
    let handed_out = hand_out_steps(most);
    let steps = match rail {
        Rail::Ring => {
            // Runs of a strand, at most.
            let runs = 1 + most - shards;
            let batches = runs.div_ceil(runs_together(most));
            (hosts * batches * handed_out).max(hosts - 1)
        }
        _ => rounds(hosts) + handed_out,
    };
    Stated { steps: handed_over + steps, sent: (hosts - 1) * strand + (most - 1) * all }
}

fn bill(call: &Call, layout: &Layout, spread: &Spread, chunk: usize) -> Bill {
    let (_, most) = layout.ranks_per_host();
    let within = [usize::from(most > spread.shards) + hand_out_steps(most), 0];
    let between = [&bruck::ALGORITHM, &ring::ALGORITHM];
    strands::bill(between, call, layout, spread, chunk, within)
}

fn schedule_by(plan: &ScheduleParams<'_>, spread: &Spread) -> Schedule {
    let hosts = Hosts::new(plan.layout, spread.shards);
    let strands = Strands::new(&hosts, Buffer::Output, plan.call.count);
    let place = hosts.place(plan.rank);
    let team = Team::new(hosts.team(place), plan.rank);
    let member = Member { plan, hosts, strands, place, team };
    match spread.rail {
        Rail::Ring => member.around(),
        _ => member.exchange(),
    }
}

/// One rank, on the host at `place`.
struct Member<'a> {
    plan: &'a ScheduleParams<'a>,
    hosts: Hosts<'a>,
    strands: Strands,
    place: usize,
    team: Team,
}

impl Member<'_> {
    /// The part of the block of the rank at `at` that the carrier of `shard` carries.
    fn cut(&self, at: usize, shard: usize) -> Slice {
        let block = block_of(Buffer::Output, self.team.ranks[at], self.plan.call.count);
        cut(block, self.hosts.shards, at, shard)
    }

    /// The place in the input of elements of this rank's block.
    fn input(&self, own: Slice) -> Slice {
        let start = self.plan.rank.index() * self.plan.call.count;
        Slice::new(Buffer::Input, own.offset - start, own.len)
    }

    /// Gives this host's blocks to its carriers, as far as they are in the windows of `part`.
    fn hand_over(&self, steps: &mut Builder, part: impl Fn(Slice) -> Slice) {
        let Self { hosts, strands, place, team, .. } = self;
        let (shards, me) = (hosts.shards, team.place);
        let parts = |shard: usize| strands.runs(*place, shard).iter().map(|run| part(*run));
        if me >= shards {
            for shard in 0..shards {
                let own = self.cut(me, shard);
                for own in parts(shard).map(|part| common(part, own)).filter(|it| it.len > 0) {
                    steps.send(team.ranks[shard], self.input(own));
                }
            }
            return;
        }
        for (at, other) in team.ranks.iter().enumerate() {
            let cut = self.cut(at, me);
            for cut in parts(me).map(|part| common(part, cut)).filter(|it| it.len > 0) {
                match at {
                    _ if at == me => steps.copy(self.input(cut), cut),
                    _ => steps.recv(*other, cut),
                }
            }
        }
    }

    fn around(&self) -> Schedule {
        let Self { plan, hosts, strands, place, team } = self;
        let (size, shards, me) = (hosts.count(), hosts.shards, team.place);
        let at_once = if size > 2 { 1 } else { strands.longest().div_ceil(plan.layout.channels()) };
        let round = at_once.max(TOGETHER * plan.chunk);
        let rounds = strands.longest().div_ceil(round);
        let lanes = plan.lanes(rounds);
        let mut steps = Builder::new(plan, ALGORITHM.name, lanes);
        let rail = if me < shards && size > 1 { hosts.rail(me) } else { &[] };
        let next = rail.get((place + 1) % size);
        let previous = rail.get((place + size - 1) % size);
        let together = runs_together(plan.layout.ranks_per_host().1);
        // The host whose blocks arrive in a turn.
        let passing = |turn: usize| (place + size - turn) % size;
        for index in 0..rounds {
            let part = |run| part(run, index, round);
            let steps = steps.lane(index % lanes);
            self.hand_over(steps, part);
            for turn in 0..size {
                let (held, coming) = (passing(turn), passing(turn + 1));
                let runs = strands.most_runs(held).max(strands.most_runs(coming));
                for at in (0..runs).step_by(together) {
                    let runs = |host, shard| {
                        let runs = strands.runs(host, shard).iter().skip(at).take(together);
                        runs.map(|run| part(*run))
                    };
                    if let (Some(next), true) = (next, turn + 1 < size) {
                        runs(held, me).for_each(|run| steps.send(*next, run));
                    }
                    hand_out(steps, team, shards, |shard| runs(held, shard));
                    if let (Some(previous), true) = (previous, turn + 1 < size) {
                        runs(coming, me).for_each(|run| steps.recv(*previous, run));
                    }
                    steps.part();
                }
            }
        }
        steps.build()
    }

    /// The carriers gather in scratch, where strands are in the order of their hosts, from this
    /// rank's host on.
    fn exchange(&self) -> Schedule {
        let Self { plan, hosts, strands, place, team } = self;
        let (size, shards, me) = (hosts.count(), hosts.shards, team.place);
        let mut steps = Builder::new(plan, ALGORITHM.name, 1);
        let from_here = || (0..size).map(|distance| (place + distance) % size);
        let gathered: Vec<Slice> =
            (0..shards).map(|shard| steps.scratch(strands.of_shard(shard).1)).collect();
        if me >= shards {
            // Receivers expect elements of scratch.
            let own = Slice::new(Buffer::Input, 0, plan.call.count);
            let packed = steps.scratch(own.len);
            steps.copy(own, packed);
            for shard in 0..shards {
                steps.send(team.ranks[shard], blocks_of(packed, shards, shard..shard + 1));
            }
        } else {
            let mut free = gathered[me];
            for run in strands.runs(*place, me) {
                self.pack(&mut steps, *run, free);
                free = free.skip(run.len);
            }
            let len_of = |first: usize, hosts: usize| {
                let nearest = from_here().cycle().skip(first).take(hosts);
                nearest.map(|host| strands.len(host, me)).sum::<usize>()
            };
            let rail = hosts.rail(me);
            for distance in distances(size) {
                let number = distance.min(size - distance);
                let [before, after] =
                    [before, after].map(|way| rail[way(Rank::at(*place), distance, size).index()]);
                steps.send(before, gathered[me].take(len_of(0, number)));
                let missing = gathered[me].skip(len_of(0, distance));
                steps.recv(after, missing.take(len_of(distance, number)));
            }
        }
        hand_out(&mut steps, team, shards, |shard| core::iter::once(gathered[shard]));
        // Copies in a row become one.
        let mut copied: Option<(Slice, Slice)> = None;
        for (shard, gathered) in gathered.iter().enumerate() {
            let mut rest = *gathered;
            for run in from_here().flat_map(|host| strands.runs(host, shard)) {
                let src = rest.take(run.len);
                rest = rest.skip(run.len);
                match &mut copied {
                    Some((from, to)) if from.end() == src.offset && to.end() == run.offset => {
                        from.len += run.len;
                        to.len += run.len;
                    }
                    _ => {
                        copied.into_iter().for_each(|(from, to)| steps.copy(from, to));
                        copied = Some((src, *run));
                    }
                }
            }
        }
        copied.into_iter().for_each(|(from, to)| steps.copy(from, to));
        steps.build()
    }

    /// Collects a run of this host's blocks at the front of `dst`.
    fn pack(&self, steps: &mut Builder, run: Slice, dst: Slice) {
        for (at, other) in self.team.ranks.iter().enumerate() {
            let cut = common(self.cut(at, self.team.place), run);
            if cut.len > 0 {
                let dst = dst.skip(cut.offset - run.offset).take(cut.len);
                match at {
                    _ if at == self.team.place => steps.copy(self.input(cut), dst),
                    _ => steps.recv(*other, dst),
                }
            }
        }
    }
}
