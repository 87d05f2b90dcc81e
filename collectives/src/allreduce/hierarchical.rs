//! Hierarchical: within every host first, then between the hosts, then within every host again.
//!
//! 1. The buffer is cut into shards, one for each rank of a host. Rank i of a host combines what
//!    all of its host have in shard i.
//! 2. Rank i of every host, together its *rail*, reduce shard i among each other: by a ring, by
//!    halving and doubling or by recursive doubling, whichever is cheapest there. On a fabric with
//!    a switch for each rail, nothing leaves its rail.
//! 3. Everyone sends the result of its shard to all of its host.
//!
//! Every host so sends what a single rank would, however many it has. There are as many shards as
//! the host with the fewest has ranks, and no shard is very short: the others of a host, in a short
//! call all but the first, hand over their input and get the result.
//!
//! Long shards do so piece by piece. To let two pieces take turns, one within the hosts while the
//! other is between them, gained a quarter at best and lost as much elsewhere, as measured.
//!
//! With h hosts of k ranks each:
//! Steps: those of the rail's algorithm on h ranks, and 2 more. Sent by each rank: 2(k-1)/k of the
//! buffer to ranks of its host, and what the rail's algorithm sends of 1/k of the buffer.
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
use crate::chunk::{block, part};
use crate::cost;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllReduce, name: "hierarchical", schedule, stated };

/// Bytes that a shard has at least: below that, the messages of one more rank cost a host more than
/// it spares the others.
const SHARD_BYTES: usize = 4 * 1024;

/// What a rail may do, by what it takes.
const RAILS: &[Algorithm] =
    &[recursive_doubling::ALGORITHM, halving_doubling::ALGORITHM, ring::ALGORITHM];

/// How a call is spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) hosts: usize,
    /// Ranks of the host that has most.
    pub(crate) most: usize,
    /// Shards, and so rails.
    pub(crate) shards: usize,
    /// What each rail does.
    pub(crate) rail: &'static Algorithm,
    /// The call of a rail.
    pub(crate) rail_call: Call,
}

impl Levels {
    pub(crate) fn of(call: &Call, layout: &Layout) -> Self {
        let (hosts, (fewest, most)) = (layout.hosts(), layout.ranks_per_host());
        let shards = (call.count * call.data_type.bytes() / SHARD_BYTES).clamp(1, fewest.max(1));
        let rail_call = Call { count: call.count / shards, ..*call };
        let price = |rail: &&Algorithm| cost::of_rail(rail, &rail_call, layout, hosts, shards);
        let rail = RAILS.iter().min_by_key(price).unwrap_or(&RAILS[0]);
        Self { hosts, most, shards, rail, rail_call }
    }

    /// Elements of each shard that are reduced together, where pipelines pass on `chunk`.
    fn section(&self, chunk: usize) -> usize {
        match self.rail.name {
            "ring" => ring::section(self.hosts, chunk),
            "halving_doubling" => halving_doubling::section(self.hosts, chunk),
            _ => chunk,
        }
    }
}

/// The busiest rank is that of a shard, where most are. An upper bound where hosts have different
/// numbers of ranks.
fn stated(call: &Call, layout: &Layout) -> Stated {
    let Levels { hosts, most, shards, rail, rail_call } = Levels::of(call, layout);
    let of_rail = (rail.stated)(&rail_call, &Layout::apart(hosts));
    let within = if most > 1 { shards - 1 + most - 1 } else { 0 };
    Stated {
        steps: of_rail.steps + if most > 1 { 2 } else { 0 },
        sent: of_rail.sent + within * (call.count / shards),
    }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let member = Member::new(plan);
    let pieces = member.shard(0).len.div_ceil(member.section);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let between = Between::new(&member, &mut steps);
    for index in 0..pieces {
        member.piece(&mut steps, &between, index);
    }
    steps.build()
}

/// A rank at its place.
struct Member<'a> {
    plan: &'a Plan<'a>,
    levels: Levels,
    /// The ranks of its host, and which of them it is.
    host: Vec<Rank>,
    place: usize,
    /// Those of its rail, one of each host; none if no shard is its.
    rail: Vec<Rank>,
    /// Elements of each shard that are reduced together.
    section: usize,
}

impl<'a> Member<'a> {
    fn new(plan: &'a Plan<'a>) -> Self {
        let Plan { call, layout, rank, chunk, .. } = *plan;
        let levels = Levels::of(&call, layout);
        let host: Vec<Rank> = layout.ranks_on(layout.host(rank)).to_vec();
        let place = host.iter().position(|member| *member == rank).unwrap_or(0);
        let rail =
            if place < levels.shards { layout.carriers()[place].to_vec() } else { Vec::new() };
        // Without sums of its host, in place, it sends what results overwrite.
        let is_narrow = levels.most == 1 && levels.rail.name == "recursive_doubling";
        let chunk = if is_narrow { chunk.min(plan.eager()) } else { chunk };
        let mut member = Self { plan, levels, host, place, rail, section: 1 };
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

    fn piece(&self, steps: &mut Builder, between: &Between, index: usize) {
        let (me, size) = (Rank::at(self.place), self.host.len());
        let of = |buffer, at| Slice { buffer, ..part(self.shard(at), index, self.section) };
        let (own, result) = (of(Buffer::Input, self.place), of(Buffer::Output, self.place));
        let sums = match self.levels {
            Levels { hosts: 1, .. } => result,
            Levels { most: 1, .. } => own,
            _ => between.sums.take(own.len),
        };
        let shot = piece_len(self.plan, size);
        let shots = 0..of(Buffer::Input, 0).len.div_ceil(shot);
        if sums != own {
            steps.among(&self.host, |steps| {
                for index in shots.clone() {
                    let input = |to: Rank| part(of(Buffer::Input, to.index()), index, shot);
                    first_shot(steps, me, size, input, part(sums, index, shot));
                }
            });
        }
        if self.levels.hosts > 1 {
            steps.among(&self.rail, |steps| between.rail.piece(steps, sums, result));
        }
        steps.among(&self.host, |steps| {
            for index in shots {
                let of = |from: Rank| part(of(Buffer::Output, from.index()), index, shot);
                second_shot(steps, me, size, of);
            }
        });
    }
}

/// What pieces use in turn between hosts.
struct Between {
    /// Those of this rank's host.
    sums: Slice,
    rail: Rail,
}

/// A rank of a rail.
enum Rail {
    Doubling(Doubling),
    Halves(Halves),
    Ring(Ring),
}

impl Between {
    fn new(member: &Member<'_>, steps: &mut Builder) -> Self {
        let Member { plan, levels, section, .. } = member;
        let section = if member.rail.is_empty() { 0 } else { *section };
        let sums = steps.scratch(if levels.most > 1 && levels.hosts > 1 { section } else { 0 });
        let (rank, size) = (Rank(plan.layout.host(plan.rank)), levels.hosts);
        let rail = match levels.rail.name {
            "ring" => {
                let longest = block(Buffer::Input, section, size, 0).len;
                Rail::Ring(Ring::new(steps, rank, size, plan.chunk, longest))
            }
            "halving_doubling" => {
                // They are halved where they are.
                let sums = if sums.len > 0 { sums } else { steps.scratch(section) };
                Rail::Halves(Halves::new(rank, size, sums))
            }
            _ => Rail::Doubling(Doubling::new(steps, rank, size, section)),
        };
        Self { sums, rail }
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
