//! Hierarchical: the buffer enters each host once, and ranks of a host pass it on there.
//!
//! 1. The buffer is cut into shards. The root sends each carrier of its host its shard.
//! 2. The carriers of a shard, one on each host, pass it along a tree or a chain of hosts, which
//!    begins at the root's. Hosts are in fabric order.
//! 3. Each carrier sends the shard to all other ranks of its host.
//!
//! With one shard the root carries it. Every chunk goes through these steps by itself. For a chunk
//! a rank waits only for messages of the same or an earlier chunk, from ranks above it or from its
//! host. So no ranks wait in a circle.
//!
//! The costs are those of h hosts of k ranks each, with s carriers. Steps: floor(log2 h) for a tree
//! or h-1 for a chain, 1 more for step 3, and 1 more for step 1 with several shards. Sent by a root
//! that is a carrier, with c hosts below its own: (s-1 + c + k-1)/s of the buffer. Pipelined in
//! chunks.
//!
//! Source: Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in
//! parallel computer networks to optimize collective operation performance", 2000. Shards: the
//! scatter of Barnett and others (`scatter_allgather`).

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::{binomial, chain, linear};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block, part};
use crate::cost::bill::Bill;
use crate::hosts::rooted::{self, Rooted, depth, ways};
use crate::hosts::{Hierarchy, Spread, Team, hand_out_but, hand_out_steps};
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
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
    on_one_host: &linear::ALGORITHM,
};

/// Consecutive chunks that take the same lane.
const TOGETHER: usize = 4;

/// The cost of the root, or of a carrier. It is an upper bound where hosts differ in size.
fn stated_by(call: &Call, layout: &Layout, spread: &Spread) -> Stated {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let Spread { shards, rail } = *spread;
    let shard = call.count.div_ceil(shards);
    let rooted = Rooted::new(call, layout, spread);
    let below = |place: usize| rooted.below(place).len();
    let others = most - 1;
    let of_root = match (0..shards).all(|shard| rooted.near_root(shard).is_some()) {
        true => shards * shard,
        false => (shards - 1 + below(0) + others) * shard,
    };
    let near = if shards > 1 { (below(0) + others - 1) * shard } else { 0 };
    let far = (1..hosts).map(|place| (below(place) + others) * shard).max().unwrap_or(0);
    let steps = usize::from(shards > 1) + depth(hosts, rail) + hand_out_steps(most);
    Stated { steps, sent: of_root.max(near).max(far) }
}

fn bill(call: &Call, layout: &Layout, spread: &Spread, chunk: usize) -> Bill {
    let (_, most) = layout.ranks_per_host();
    let within = [usize::from(spread.shards > 1) + hand_out_steps(most), 0];
    let along = [&binomial::ALGORITHM, &chain::ALGORITHM];
    rooted::bill(along, call, layout, spread, chunk, within)
}

fn schedule_by(plan: &ScheduleParams<'_>, spread: &Spread) -> Schedule {
    let rooted = Rooted::new(&plan.call, plan.layout, spread);
    let (count, rank, shards) = (plan.call.count, plan.rank, spread.shards);
    let place = rooted.hosts.place(rank);
    let team = Team::new(rooted.hosts.team(place), rank);
    let is_root = rank == rooted.root;
    let buffer = if is_root { Buffer::Input } else { Buffer::Output };
    let rail = if team.place < shards { rooted.hosts.rail(team.place) } else { &[] };
    let below: Vec<Rank> =
        rooted.below(place).iter().filter_map(|below| rail.get(*below)).copied().collect();
    let pieces = block(buffer, count, shards, 0).len.div_ceil(plan.chunk);
    let lanes = plan.lanes(pieces.div_ceil(TOGETHER));
    let mut steps = Builder::new(plan, ALGORITHM.name, lanes);
    let piece = |shard: usize, index: usize| -> Slice {
        part(block(buffer, count, shards, shard), index, plan.chunk)
    };
    for index in 0..pieces {
        let steps = steps.lane(index / TOGETHER % lanes);
        if is_root {
            for shard in 0..shards {
                if let Some(carrier) = rooted.near_root(shard) {
                    steps.send(carrier, piece(shard, index));
                }
            }
        } else if team.place < shards {
            let above = rooted.above(place).map_or(rooted.root, |above| rail[above]);
            steps.recv(above, piece(team.place, index));
        }
        for below in below.iter().rev() {
            steps.send(*below, piece(team.place, index));
        }
        let pieces = |shard| core::iter::once(piece(shard, index));
        hand_out_but(steps, &team, shards, Some(rooted.root), pieces);
        steps.part();
    }
    if is_root {
        for index in 0..pieces {
            for own in (0..shards).map(|shard| piece(shard, index)) {
                // The last steps, because in place they wait until the sends of their source are
                // done.
                let output = Slice { buffer: Buffer::Output, ..own };
                steps.lane(index / TOGETHER % lanes).copy(own, output);
            }
        }
    }
    steps.build()
}
