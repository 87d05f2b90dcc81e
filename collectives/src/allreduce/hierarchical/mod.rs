//! Hierarchical: reduce within every host, then within leaf groups, then between these, and send
//! the results back.
//!
//! 1. The buffer is cut into shards. On each host a shard has a carrier, which combines the inputs
//!    of all ranks there. The carriers of a shard reach one rail (`Layout::carriers`), so no
//!    message leaves its rail. Where rails are unknown, carrier i is rank i of its host.
//! 2. The carriers of a shard within a leaf group do the same again. They cut the shard into parts,
//!    one for each host of the smallest group. This level is missing where leaf groups are unknown,
//!    or where it would take longer.
//! 3. The carriers of a part, one in each group, reduce it together, in fabric order. Without
//!    groups, the carriers of a shard do, one on each host. They use a ring, halving and doubling,
//!    or recursive doubling, whichever is cheapest.
//! 4. Every carrier sends the result of its part to its group, and the result of its shard to its
//!    host.
//!
//! So every host sends only as much as a single rank would, however many ranks it has. A rank that
//! carries no shard sends its input to carriers and gets the result from them. Such ranks are those
//! on a rail that some host lacks, and those in excess of the smallest host's. In a short call they
//! are most ranks, because a shard has a least length.
//!
//! Long shards pass through these steps piece by piece, one piece after the other.
//!
//! The costs are those of h hosts of k ranks each, with g hosts in each group if groups are a
//! level. Steps: those of step 3 on h ranks, plus 2; with groups those on h/g ranks, plus 4. Sent
//! by each rank: 2(k-1)/k of the buffer to ranks of its host, and 2(g-1)/g of 1/k of it to ranks of
//! its group. Step 3 sends its share of 1/k of the buffer, or of 1/gk.
//!
//! Source: Cho, Finkler and Kung, "BlueConnect: Novel hierarchical all-reduce on multi-tired
//! network for deep learning", 2019.

mod levels;
mod price;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::two_shot::{first_shot, piece_len, second_shot};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block, blocks_of, part};
use crate::flat::{Participant, Reducer};
use crate::hosts::Team;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule};
use levels::Levels;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "hierarchical",
    needs: Needs::Links,
    pattern: Pattern::Levels(price::price),
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: |call, layout| {
        let shards = price::cheapest(call, layout).shards;
        layout.carriers()[..shards].iter().all(|rail| rails::among(layout, rail.iter().copied()))
    },
};

/// The cost of a carrier of a shard and of a part: the busiest rank, on the fullest host of the
/// largest group. It is an upper bound where hosts or groups differ in size.
fn stated(call: &Call, layout: &Layout) -> Stated {
    stated_by(call, &price::cheapest(call, layout))
}

fn stated_by(call: &Call, levels: &Levels) -> Stated {
    let Levels { most, shards, groups, rail, rail_call, .. } = *levels;
    let of_rail = (rail.algorithm.stated)(&rail_call, &Layout::apart(levels.units()));
    let within = if most > 1 { shards - 1 + most - 1 } else { 0 };
    let in_group = groups.map_or(0, |groups| groups.parts - 1 + groups.most - 1);
    Stated {
        steps: of_rail.steps + if most > 1 { 2 } else { 0 } + if groups.is_some() { 2 } else { 0 },
        sent: of_rail.sent + within * (call.count / shards) + in_group * rail_call.count,
    }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    schedule_by(plan, price::cheapest(&plan.call, plan.layout))
}

fn schedule_by(plan: &ScheduleParams<'_>, levels: Levels) -> Schedule {
    let member = Member::new(plan, levels);
    let pieces = member.shard(0).len.div_ceil(member.section);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let scratch = Scratch::new(&member, &mut steps);
    for index in 0..pieces {
        member.piece(&mut steps, &scratch, index);
    }
    steps.build()
}

/// One rank, with the teams that it works in.
struct Member<'a> {
    plan: &'a ScheduleParams<'a>,
    levels: Levels,
    /// The ranks of this host: first its carriers by shard, then the others.
    host: Team,
    /// The carriers of this rank's shard in its leaf group. Empty if it carries no shard, or if
    /// groups are no level.
    group: Team,
    /// The carriers of this rank's part, or of its shard without groups. Empty if it carries none.
    rail: Team,
    /// Elements of each shard that are reduced together.
    section: usize,
}

impl<'a> Member<'a> {
    fn new(plan: &'a ScheduleParams<'a>, levels: Levels) -> Self {
        let ScheduleParams { layout, rank, chunk, .. } = *plan;
        let carriers = layout.carriers();
        let shards = &carriers[..levels.shards];
        let is_here = |it: &&Rank| layout.same_host(**it, rank);
        let carriers = shards.iter().filter_map(|ranks| ranks.iter().find(is_here).copied());
        let mut host: Vec<Rank> = carriers.collect();
        let others = layout.ranks_on(layout.host(rank)).iter();
        let others: Vec<Rank> = others.filter(|it| !host.contains(it)).copied().collect();
        host.extend(others);
        let host = Team::new(host, rank);
        let carried = shards.get(host.place);
        let (group, rail) =
            carried.map(|ranks| teams(&levels, layout, ranks, rank)).unwrap_or_default();
        let mut member = Self { plan, levels, host, group, rail, section: 1 };
        member.section = levels.section(chunk).min(member.shard(0).len).max(1);
        member
    }

    /// The elements of a shard. An index beyond the last shard gives an empty slice.
    fn shard(&self, at: usize) -> Slice {
        let (count, shards) = (self.plan.call.count, self.levels.shards);
        if at < shards {
            block(Buffer::Input, count, shards, at)
        } else {
            Slice::new(Buffer::Input, 0, 0)
        }
    }

    fn piece(&self, steps: &mut Builder, scratch: &Scratch, index: usize) {
        let (me, size) = (self.host.me(), self.host.size());
        let of = |buffer, at| Slice { buffer, ..part(self.shard(at), index, self.section) };
        let (own, result) =
            (of(Buffer::Input, self.host.place), of(Buffer::Output, self.host.place));
        let sums = match self.levels {
            Levels { hosts: 1, .. } => result,
            Levels { most: 1, .. } => own,
            _ => scratch.sums.take(own.len),
        };
        let shot = piece_len(self.plan, size);
        let shots = 0..of(Buffer::Input, 0).len.div_ceil(shot);
        if sums != own {
            steps.among(&self.host.ranks, |steps| {
                for index in shots.clone() {
                    let input = |to: Rank| part(of(Buffer::Input, to.index()), index, shot);
                    first_shot(steps, me, size, input, part(sums, index, shot));
                }
            });
        }
        if self.levels.hosts > 1 && own.len > 0 {
            self.between(steps, scratch, sums, result);
        }
        steps.among(&self.host.ranks, |steps| {
            for index in shots {
                let of = |from: Rank| part(of(Buffer::Output, from.index()), index, shot);
                second_shot(steps, me, size, of);
            }
        });
    }

    /// Reduces `own` of all carriers of this rank's shard to `result` on all of them.
    fn between(&self, steps: &mut Builder, scratch: &Scratch, own: Slice, result: Slice) {
        if self.levels.groups.is_none() {
            return steps.among(&self.rail.ranks, |steps| scratch.rail.piece(steps, own, result));
        }
        let (me, size, parts) = (self.group.me(), self.group.size(), self.levels.parts());
        let of = |all: Slice, at: usize| match at < parts {
            true => blocks_of(all, parts, at..at + 1),
            false => all.take(0),
        };
        let shot = piece_len(self.plan, size);
        let shots = 0..of(own, 0).len.div_ceil(shot);
        let sums = scratch.of_group.take(of(own, me.index()).len);
        steps.among(&self.group.ranks, |steps| {
            for index in shots.clone() {
                let own = |to: Rank| part(of(own, to.index()), index, shot);
                first_shot(steps, me, size, own, part(sums, index, shot));
            }
        });
        if sums.len > 0 {
            let result = of(result, me.index());
            steps.among(&self.rail.ranks, |steps| scratch.rail.piece(steps, sums, result));
        }
        steps.among(&self.group.ranks, |steps| {
            for index in shots {
                second_shot(steps, me, size, |from| part(of(result, from.index()), index, shot));
            }
        });
    }
}

/// The carriers of a shard in the leaf group of `rank`, and the carriers of its part. `ranks` are
/// the carriers of the shard on all hosts.
fn teams(levels: &Levels, layout: &Layout, ranks: &[Rank], rank: Rank) -> (Team, Team) {
    if levels.groups.is_none() {
        return (Team::default(), Team::new(ranks.to_vec(), rank));
    }
    let groups = layout.leaf_groups();
    let of = |places: &Vec<usize>| places.iter().map(|place| ranks[*place]).collect::<Vec<_>>();
    let own = groups.iter().map(of).find(|group| group.contains(&rank)).unwrap_or_default();
    let group = Team::new(own, rank);
    let rail = if group.place < levels.parts() {
        groups.iter().map(|places| ranks[places[group.place]]).collect()
    } else {
        Vec::new()
    };
    (group, Team::new(rail, rank))
}

/// The memory that all pieces use, one after the other.
struct Scratch {
    /// Sums of this rank's host.
    sums: Slice,
    /// Sums of this rank's leaf group.
    of_group: Slice,
    /// This rank as one of the carriers of a part.
    rail: Box<dyn Reducer>,
}

impl Scratch {
    fn new(member: &Member<'_>, steps: &mut Builder) -> Self {
        let Member { plan, levels, section, rail, .. } = member;
        let is_carrier = member.host.place < levels.shards;
        let section = if is_carrier && levels.hosts > 1 { *section } else { 0 };
        let form = plan.sums_form_among_all();
        let sums = steps.sums(if levels.most > 1 { section } else { 0 }, form);
        let longest = block(Buffer::Input, section, levels.parts(), 0).len;
        let longest = if rail.ranks.is_empty() { 0 } else { longest };
        let of_group = steps.sums(if levels.groups.is_some() { longest } else { 0 }, form);
        let participant = Participant {
            rank: rail.me(),
            size: levels.units(),
            chunk: plan.chunk,
            longest,
            eager: plan.eager(Form::Element),
            sums: if of_group.len > 0 { of_group } else { sums },
            form,
        };
        let rail = (levels.rail.prepare)(steps, &participant);
        Self { sums, of_group, rail }
    }
}
