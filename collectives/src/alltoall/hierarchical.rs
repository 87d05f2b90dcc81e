//! Hierarchical: blocks for another host go there together, by carriers (`hosts`).
//!
//! 1. The ranks of a host give each carrier the blocks that it carries, and each other their own.
//! 2. Each carrier sends the carriers of its shard on other hosts what it carries for these hosts,
//!    in one message for each.
//! 3. Those hand the blocks out to the ranks of their host.
//!
//! There are two ways to divide the blocks among carriers. By *rails*, the carrier of a shard
//! carries the blocks of those ranks that carry the shard on their hosts. Where each rank is a
//! carrier, nothing is left for step 3. A rank that carries no shard belongs to one. By *pairs* of
//! hosts, one carrier has all that its host has for the other. So one message goes from any host to
//! any other.
//!
//! Ranks send to the nearest first, and no more at once than they may post (`hand_out`). In each
//! step a rank waits only for messages of the same or an earlier step.
//!
//! The costs are those of h hosts of k ranks each, with k carriers. Steps: 2 by rails and 3 by
//! pairs, while a rank can post all sends. Sent by a carrier: h(k-1) + (h-1)k blocks by rails.
//! By pairs, a carrier for p pairs sends (k-1) + (h-1)k + 2pk(k-1) blocks.
//!
//! Source: Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all
//! communication", 2014. By rails: Kumar, Sabharwal, Garg and Heidelberger, "Optimization of
//! all-to-all communication on the Blue Gene/L supercomputer", 2008.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank, Slice};

use super::linear::{self, Blocks};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::cost::bill::Bill;
use crate::hosts::price::{Within, among};
use crate::hosts::{Hierarchy, Hosts, Rail, Spread, TOGETHER, hand_out_steps};
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllToAll,
    name: "hierarchical",
    needs: Needs::Links,
    pattern: Pattern::Levels(|call, layout, chunk| HIERARCHY.price(call, layout, chunk)),
    schedule: |plan| HIERARCHY.schedule(plan),
    stated: |call, layout| HIERARCHY.stated(call, layout),
    moved: Moved::results,
    stays_on_rail: |call, layout| HIERARCHY.stays_on_rail(call, layout),
};

pub(crate) const HIERARCHY: Hierarchy = Hierarchy {
    ways,
    bill,
    stated: stated_by,
    schedule: schedule_by,
    on_one_host: &linear::ALGORITHM,
};

fn ways(layout: &Layout) -> Vec<Spread> {
    let shards = layout.carriers().len().max(1);
    let mut ways = alloc::vec![Spread { shards, rail: Rail::Direct }];
    if layout.hosts() > 1 && shards > 1 {
        ways.push(Spread { shards, rail: Rail::Pairs });
    }
    ways
}

/// The hosts to which the busiest carrier sends, and the ranks for whose blocks it does so on each.
fn carried_most(layout: &Layout, &Spread { shards, rail }: &Spread) -> [usize; 2] {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    match rail {
        Rail::Pairs => [hosts.div_ceil(shards), most],
        _ => [hosts - 1, most.div_ceil(shards)],
    }
}

/// Whether ranks get blocks from others that carry them.
fn hands_out(layout: &Layout, spread: &Spread) -> bool {
    let (_, most) = layout.ranks_per_host();
    layout.hosts() > 1 && most > 1 && (spread.rail == Rail::Pairs || most > spread.shards)
}

/// The cost of a carrier on the fullest host. It is an upper bound where hosts differ in size.
fn stated_by(call: &Call, layout: &Layout, spread: &Spread) -> Stated {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let [partners, ranks] = carried_most(layout, spread);
    let within = hand_out_steps(most) * (1 + usize::from(hands_out(layout, spread)));
    let carried = partners * ranks;
    let handed_over = (most - 1) + (hosts - 1) * most - carried;
    let handed_out = partners * (ranks - 1) * most;
    let sent = handed_over + carried * most + handed_out;
    Stated { steps: within + hand_out_steps(hosts), sent: sent * call.count }
}

fn bill(call: &Call, layout: &Layout, spread: &Spread, chunk: usize) -> Bill {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let [partners, ranks] = carried_most(layout, spread);
    let message = Call { count: call.count * ranks * most, ..*call };
    let carriers =
        if spread.rail == Rail::Pairs { spread.shards.min(hosts - 1) } else { spread.shards };
    let sizes = [partners + 1, carriers.max(1)];
    let between = among(&linear::ALGORITHM, &message, layout, sizes, chunk);
    if most == 1 {
        return between;
    }
    let times = 1 + usize::from(hands_out(layout, spread));
    let whole = call.count * layout.size();
    let within = Within {
        steps: hand_out_steps(most) * times,
        messages: (most - 1) * times,
        moved: stated_by(call, layout, spread).sent - partners * message.count,
        average: whole * times,
        // Blocks are packed twice: for a carrier, and by it.
        combined: 2 * whole,
    };
    between.and(&within.bill(call, layout, between.switch_ps, chunk))
}

/// The hosts and their ranks, and the division of blocks among carriers.
struct Routes<'a> {
    hosts: Hosts<'a>,
    /// By place of the host.
    teams: Vec<Vec<Rank>>,
    rail: Rail,
}

impl<'a> Routes<'a> {
    fn new(layout: &'a Layout, &Spread { shards, rail }: &Spread) -> Self {
        let hosts = Hosts::new(layout, shards);
        let teams = (0..hosts.count()).map(|place| hosts.team(place)).collect();
        Self { hosts, teams, rail }
    }

    /// The shard of the blocks that go from one host to the rank at place `at` of another.
    fn shard(&self, [from, to]: [usize; 2], at: usize) -> usize {
        let of = if self.rail == Rail::Pairs { from + to } else { at };
        of % self.hosts.shards
    }

    /// The places of the ranks of a host for which a shard carries the blocks of another host.
    fn carried(&self, way: [usize; 2], shard: usize) -> impl Iterator<Item = usize> {
        let places = 0..self.teams[way[1]].len();
        places.filter(move |at| self.shard(way, *at) == shard)
    }

    /// The places of all other hosts, the one after `place` first.
    fn others(&self, place: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.hosts.count();
        (1..count).map(move |distance| (place + distance) % count)
    }
}

fn schedule_by(plan: &ScheduleParams<'_>, spread: &Spread) -> Schedule {
    let routes = Routes::new(plan.layout, spread);
    let place = routes.hosts.place(plan.rank);
    let me = routes.teams[place].iter().position(|rank| *rank == plan.rank).unwrap_or(0);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks = Blocks::of(plan);
    steps.copy(blocks.to(plan.rank), blocks.from(plan.rank));
    let member = Member { blocks, count: plan.call.count, routes: &routes, place, me };
    let leaving = member.hand_over(&mut steps);
    steps.part();
    let arrived = member.exchange(&mut steps, &leaving);
    steps.part();
    member.hand_out(&mut steps, &arrived);
    steps.build()
}

/// One rank, at place `me` of the team at `place`.
struct Member<'a> {
    blocks: Blocks,
    count: usize,
    routes: &'a Routes<'a>,
    place: usize,
    me: usize,
}

impl Member<'_> {
    fn team(&self) -> &[Rank] {
        &self.routes.teams[self.place]
    }

    /// Takes the blocks that this rank carries. Returns them by place of the host for which they
    /// are: all blocks for its first rank first.
    fn hand_over(&self, steps: &mut Builder) -> Vec<Slice> {
        let Self { blocks, count, routes, place, me } = *self;
        let team = self.team();
        let ranks_of = |other: usize, shard: usize| {
            let carried = routes.carried([place, other], shard);
            carried.map(move |at| routes.teams[other][at])
        };
        let mut leaving = alloc::vec![steps.elements(0); routes.teams.len()];
        for other in routes.others(place) {
            leaving[other] = steps.elements(ranks_of(other, me).count() * team.len() * count);
            for (index, to) in ranks_of(other, me).enumerate() {
                let block = leaving[other].skip((index * team.len() + me) * count);
                steps.copy(blocks.to(to), block.take(count));
            }
        }
        windows(team.len(), |distances, sends| {
            for distance in distances {
                if sends {
                    let at = (me + distance) % team.len();
                    let ranks = routes.others(place).flat_map(|other| ranks_of(other, at));
                    let ranks: Vec<Rank> = core::iter::once(team[at]).chain(ranks).collect();
                    let message = match ranks[..] {
                        [rank] => blocks.to(rank),
                        _ => {
                            let room = steps.elements(ranks.len() * count);
                            steps.pack(ranks.into_iter().map(|rank| blocks.to(rank)), room)
                        }
                    };
                    steps.send(team[at], message);
                } else {
                    let at = (me + team.len() - distance) % team.len();
                    steps.recv(team[at], blocks.from(team[at]));
                    for other in routes.others(place) {
                        for index in 0..ranks_of(other, me).count() {
                            let block = leaving[other].skip((index * team.len() + at) * count);
                            steps.recv(team[at], block.take(count));
                        }
                    }
                }
            }
        });
        leaving
    }

    /// Exchanges what this rank carries. Returns the blocks that have arrived, by place of the rank
    /// for which they are: all blocks of the host after this first. Its own are in the output.
    fn exchange(&self, steps: &mut Builder, leaving: &[Slice]) -> Vec<Slice> {
        let Self { blocks, count, routes, place, me } = *self;
        let hosts = routes.teams.len();
        let arriving = |at: usize| {
            let carries = |other: &usize| routes.shard([*other, place], at) == me;
            routes
                .others(place)
                .filter(carries)
                .map(|other| routes.teams[other].len())
                .sum::<usize>()
        };
        let room = |at: usize| steps.elements(if at == me { 0 } else { arriving(at) * count });
        let arrived: Vec<Slice> = (0..self.team().len()).map(room).collect();
        let carrier = |other: usize| routes.hosts.rail(me)[other];
        windows(if me < routes.hosts.shards { hosts } else { 1 }, |distances, sends| {
            for distance in distances {
                if sends {
                    let other = (place + distance) % hosts;
                    steps.send(carrier(other), leaving[other]);
                    continue;
                }
                let other = (place + hosts - distance) % hosts;
                for at in routes.carried([other, place], me) {
                    if at == me {
                        let of_all = routes.teams[other].iter();
                        of_all.for_each(|from| steps.recv(carrier(other), blocks.from(*from)));
                        continue;
                    }
                    let before = routes.others(place).take_while(|it| *it != other);
                    let before = before.filter(|it| routes.shard([*it, place], at) == me);
                    let before: usize = before.map(|it| routes.teams[it].len()).sum();
                    let len = routes.teams[other].len() * count;
                    steps.recv(carrier(other), arrived[at].skip(before * count).take(len));
                }
            }
        });
        arrived
    }

    /// Gives each rank of the host the blocks that have arrived for it.
    fn hand_out(&self, steps: &mut Builder, arrived: &[Slice]) {
        let Self { blocks, routes, place, me, .. } = *self;
        let team = self.team();
        windows(team.len(), |distances, sends| {
            for distance in distances {
                if sends {
                    let at = (me + distance) % team.len();
                    steps.send(team[at], arrived[at]);
                    continue;
                }
                let at = (me + team.len() - distance) % team.len();
                let carries = |other: &usize| routes.shard([*other, place], me) == at;
                for other in routes.others(place).filter(carries) {
                    let of_all = routes.teams[other].iter();
                    of_all.for_each(|from| steps.recv(team[at], blocks.from(*from)));
                }
            }
        });
    }
}

/// Writes the steps of one member of a group of `size` by their distances: the sends to the
/// nearest, then the receives from the nearest on the other side, and so on.
///
/// Before the slowest posts the next sends, all others have received its earlier ones. So none wait
/// in a circle.
fn windows(size: usize, mut write: impl FnMut(core::ops::Range<usize>, bool)) {
    for nearest in (1..size).step_by(TOGETHER) {
        for sends in [true, false] {
            write(nearest..size.min(nearest + TOGETHER), sends);
        }
    }
}
