//! Hierarchical: within every host first, then within leaf groups, then between these, and back.
//!
//! 1. The buffer is cut into shards. A shard's carrier on each host combines what all ranks of its
//!    host have there. Carriers of a shard reach one rail (`Layout::carriers`), so that nothing
//!    leaves its rail; where rails are unknown, carrier i is rank i of its host.
//! 2. The carriers of a shard within a leaf group do the same again: they cut the shard into parts,
//!    one for each host of the smallest group. Where leaf groups are unknown, or this takes longer,
//!    there is no such level.
//! 3. The carriers of a part, one in each group, or those of a shard, one on each host, reduce it
//!    among each other, in fabric order: by a ring, by halving and doubling or by recursive
//!    doubling, whichever is cheapest there.
//! 4. Every carrier sends the result of its part to its group, and of its shard to its host.
//!
//! Every host so sends what a single rank would, however many it has. A rank that carries no shard
//! hands in its input and gets the result: others forward for it. These are ranks whose rail some
//! host lacks, ranks beyond those of the smallest host and, since no shard is very short, in a
//! short call most ranks.
//!
//! Long shards do so piece by piece. To let two pieces take turns, one within the hosts while the
//! other is between them, gained a quarter at best and lost as much elsewhere, as measured.
//!
//! With h hosts of k ranks each, and g hosts in each group, if groups are a level:
//! Steps: those of step 3 on h ranks, or on h/g and 2 more; and 2 more. Sent by each rank: 2(k-1)/k
//! of the buffer to ranks of its host, 2(g-1)/g of 1/k to ranks of its group, and what step 3 sends
//! of 1/k of the buffer, or of 1/gk.
//!
//! Cho, Finkler and Kung, "BlueConnect: Novel hierarchical all-reduce on multi-tired network for
//! deep learning", 2019.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::halving_doubling::Halves;
use super::recursive_doubling::Doubling;
use super::ring::Ring;
use super::two_shot::{first_shot, piece_len, second_shot};
use super::{halving_doubling, recursive_doubling, ring};
use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::{block, blocks_of, part};
use crate::cost;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllReduce, name: "hierarchical", schedule, stated };

/// Bytes that a shard has at least: below that, the messages of one more rank cost a host more than
/// it spares the others.
const SHARD_BYTES: usize = 4 * 1024;

/// Hosts of a leaf group up to which carriers send to all others there.
const GROUP_MAX: usize = 64;

/// What the carriers of a part may do, by what it takes.
const RAILS: &[Algorithm] =
    &[recursive_doubling::ALGORITHM, halving_doubling::ALGORITHM, ring::ALGORITHM];

/// How a call is spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) hosts: usize,
    /// Ranks of the host that has most.
    pub(crate) most: usize,
    /// Shards, and so carriers of a host.
    pub(crate) shards: usize,
    /// Leaf groups, if they are a level.
    pub(crate) groups: Option<Groups>,
    /// What the carriers of a part do,
    pub(crate) rail: &'static Algorithm,
    /// and their call.
    pub(crate) rail_call: Call,
}

/// Leaf groups as a level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    pub(crate) count: usize,
    /// Hosts of the group that has most,
    pub(crate) most: usize,
    /// and of the one that has fewest: parts of a shard.
    pub(crate) parts: usize,
}

impl Groups {
    /// The groups, if there are several of several hosts.
    fn of(groups: &[Vec<usize>]) -> Option<Self> {
        let sizes = || groups.iter().map(Vec::len);
        let (most, parts) = (sizes().max()?, sizes().min()?);
        let is_level = groups.len() > 1 && (2..=GROUP_MAX).contains(&most);
        is_level.then_some(Self { count: groups.len(), most, parts })
    }
}

impl Levels {
    pub(crate) fn of(call: &Call, layout: &Layout) -> Self {
        let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
        let carriers = layout.carriers().len();
        let shards = (call.count * call.data_type.bytes() / SHARD_BYTES).clamp(1, carriers.max(1));
        let groups = Groups::of(&layout.leaf_groups());
        let levels = |groups: Option<Groups>, rail| {
            let count = call.count / shards / groups.map_or(1, |groups| groups.parts);
            Self { hosts, most, shards, groups, rail, rail_call: Call { count, ..*call } }
        };
        let flat = RAILS.iter().map(|rail| levels(None, rail));
        let grouped = groups.into_iter().flat_map(|of| RAILS.iter().map(move |rail| (of, rail)));
        let all = flat.chain(grouped.map(|(groups, rail)| levels(Some(groups), rail)));
        let price = |levels: &Self| cost::between_hosts(levels, call, layout);
        all.min_by_key(price).unwrap_or_else(|| levels(None, &RAILS[0]))
    }

    /// Ranks that reduce a part of a shard among each other.
    pub(crate) fn units(&self) -> usize {
        self.groups.map_or(self.hosts, |groups| groups.count)
    }

    /// Parts of a shard.
    pub(crate) fn parts(&self) -> usize {
        self.groups.map_or(1, |groups| groups.parts)
    }

    /// Elements of each shard that are reduced together, where pipelines pass on `chunk`.
    fn section(&self, chunk: usize) -> usize {
        let of_part = match self.rail.name {
            "ring" => ring::section(self.units(), chunk),
            "halving_doubling" => halving_doubling::section(self.units(), chunk),
            _ => chunk,
        };
        self.parts() * of_part
    }
}

/// The busiest rank is a carrier of a shard and of a part, where most ranks and hosts are. An upper
/// bound where hosts or groups have different sizes.
fn stated(call: &Call, layout: &Layout) -> Stated {
    let levels = Levels::of(call, layout);
    let Levels { most, shards, groups, rail, rail_call, .. } = levels;
    let of_rail = (rail.stated)(&rail_call, &Layout::apart(levels.units()));
    let within = if most > 1 { shards - 1 + most - 1 } else { 0 };
    let in_group = groups.map_or(0, |groups| groups.parts - 1 + groups.most - 1);
    Stated {
        steps: of_rail.steps + if most > 1 { 2 } else { 0 } + if groups.is_some() { 2 } else { 0 },
        sent: of_rail.sent + within * (call.count / shards) + in_group * rail_call.count,
    }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let member = Member::new(plan);
    let pieces = member.shard(0).len.div_ceil(member.section);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let scratch = Scratch::new(&member, &mut steps);
    for index in 0..pieces {
        member.piece(&mut steps, &scratch, index);
    }
    steps.build()
}

/// A rank at its place.
struct Member<'a> {
    plan: &'a Plan<'a>,
    levels: Levels,
    /// The ranks of its host: carriers by shard, then the others.
    host: Team,
    /// The carriers of its shard in its leaf group; none if it carries no shard, or groups are no
    /// level.
    group: Team,
    /// The carriers of its part, or of its shard; none if it carries none.
    rail: Team,
    /// Elements of each shard that are reduced together.
    section: usize,
}

/// Some ranks, and which of them this one is.
#[derive(Default)]
struct Team {
    ranks: Vec<Rank>,
    place: usize,
}

impl Team {
    fn new(ranks: Vec<Rank>, rank: Rank) -> Self {
        let place = ranks.iter().position(|it| *it == rank).unwrap_or(0);
        Self { ranks, place }
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    /// This rank, as the others call it.
    fn me(&self) -> Rank {
        Rank::at(self.place)
    }
}

impl<'a> Member<'a> {
    fn new(plan: &'a Plan<'a>) -> Self {
        let Plan { call, layout, rank, chunk, .. } = *plan;
        let levels = Levels::of(&call, layout);
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
        // Without sums of its host, in place, it sends what results overwrite.
        let is_narrow = levels.most == 1 && levels.rail.name == "recursive_doubling";
        let is_narrow = is_narrow && levels.groups.is_none();
        let chunk = if is_narrow { chunk.min(plan.eager()) } else { chunk };
        let mut member = Self { plan, levels, host, group, rail, section: 1 };
        member.section = levels.section(chunk).min(member.shard(0).len).max(1);
        member
    }

    /// Which elements are of a shard: nothing for those that there are not.
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

    /// Reduces `own` of all carriers of this rank's shard to `result` of all.
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

/// The carriers of a shard in the leaf group of `rank`, and those of its part. Of all hosts, `ranks`
/// carry the shard.
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

/// What pieces use in turn.
struct Scratch {
    /// Sums of this rank's host,
    sums: Slice,
    /// and of its leaf group.
    of_group: Slice,
    rail: Rail,
}

/// A rank among the carriers of a part.
enum Rail {
    Doubling(Doubling),
    Halves(Halves),
    Ring(Ring),
}

impl Scratch {
    fn new(member: &Member<'_>, steps: &mut Builder) -> Self {
        let Member { plan, levels, section, rail, .. } = member;
        let is_carrier = member.host.place < levels.shards;
        let section = if is_carrier && levels.hosts > 1 { *section } else { 0 };
        let sums = steps.scratch(if levels.most > 1 { section } else { 0 });
        let longest = block(Buffer::Input, section, levels.parts(), 0).len;
        let longest = if rail.ranks.is_empty() { 0 } else { longest };
        let of_group = steps.scratch(if levels.groups.is_some() { longest } else { 0 });
        let (me, size) = (rail.me(), levels.units());
        let rail = match levels.rail.name {
            "ring" => {
                let longest = block(Buffer::Input, longest, size, 0).len;
                Rail::Ring(Ring::new(steps, me, size, plan.chunk, longest))
            }
            "halving_doubling" => {
                // They are halved where they are.
                let sums = if of_group.len > 0 { of_group } else { sums };
                let sums = if sums.len > 0 { sums } else { steps.scratch(longest) };
                Rail::Halves(Halves::new(me, size, sums))
            }
            _ => Rail::Doubling(Doubling::new(steps, me, size, longest)),
        };
        Self { sums, of_group, rail }
    }
}

impl Rail {
    fn piece(&self, steps: &mut Builder, own: Slice, result: Slice) {
        match self {
            Self::Doubling(doubling) => doubling.piece(steps, own, result),
            Self::Halves(halves) => halves.piece(steps, own, result),
            Self::Ring(ring) => ring.piece(steps, own, result),
        }
    }
}
