//! Hierarchical barrier: the ranks of a host tell their leader that they have entered, the leaders
//! tell each other, and then each leader releases its host.
//!
//! 1. Every rank sends its leader a token. The leader is a carrier (`Layout::carriers`).
//! 2. The leaders, one on each host, run a dissemination barrier.
//! 3. Each leader sends a token to all other ranks of its host.
//!
//! So each host sends few messages, however many ranks it has. A token is one element of scratch;
//! its value does not matter. Links accept tokens at once.
//!
//! The costs are those of h hosts of k ranks each. Steps: ceil(log2 h), and 2 more within hosts.
//! Sent by a leader: ceil(log2 h) + k-1 tokens.
//!
//! Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988, between
//! the leaders of hosts.

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use super::{dissemination, linear};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::cost::bill::Bill;
use crate::hosts::price::{Within, between};
use crate::hosts::{Hierarchy, Hosts, Rail, Spread};
use crate::pattern::dissemination::{distances, rounds};
use crate::pattern::ring;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Barrier,
    name: "hierarchical",
    needs: Needs::Links,
    pattern: Pattern::Levels(|call, layout, chunk| HIERARCHY.price(call, layout, chunk)),
    schedule: |plan| HIERARCHY.schedule(plan),
    stated: |call, layout| HIERARCHY.stated(call, layout),
    moved: Moved::results,
    stays_on_rail: |call, layout| HIERARCHY.stays_on_rail(call, layout),
};

pub(crate) const HIERARCHY: Hierarchy = Hierarchy {
    ways: |_| alloc::vec![Spread { shards: 1, rail: Rail::Exchange }],
    bill,
    stated: stated_by,
    schedule: schedule_by,
    on_one_host: &linear::ALGORITHM,
};

fn stated_by(_: &Call, layout: &Layout, _: &Spread) -> Stated {
    let (rounds, (_, most)) = (rounds(layout.hosts()), layout.ranks_per_host());
    Stated { steps: rounds + if most > 1 { 2 } else { 0 }, sent: rounds + most - 1 }
}

fn bill(call: &Call, layout: &Layout, spread: &Spread, chunk: usize) -> Bill {
    let (_, most) = layout.ranks_per_host();
    let between = between(&dissemination::ALGORITHM, call, layout, spread.shards, chunk);
    if most == 1 {
        return between;
    }
    let tokens = 2 * (most - 1);
    let within = Within { steps: 2, messages: tokens, moved: tokens, average: 2, combined: 0 };
    between.and(&within.bill(call, layout, between.switch_ps, chunk))
}

fn schedule_by(plan: &ScheduleParams<'_>, spread: &Spread) -> Schedule {
    let hosts = Hosts::new(plan.layout, spread.shards);
    let place = hosts.place(plan.rank);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    // Two elements, so that no token waits for the one before to leave.
    let (sent, received) = (steps.scratch(1), steps.scratch(1));
    let leader = hosts.rail(0)[place];
    if leader != plan.rank {
        steps.send(leader, sent);
        steps.recv(leader, received);
        return steps.build();
    }
    let team = hosts.team(place);
    for other in &team[1..] {
        steps.recv(*other, received);
    }
    for distance in distances(hosts.count()) {
        let [to, from] = [ring::after, ring::before]
            .map(|way| hosts.rail(0)[way(Rank::at(place), distance, hosts.count()).index()]);
        steps.send(to, sent);
        steps.recv(from, received);
    }
    for other in &team[1..] {
        steps.send(*other, sent);
    }
    steps.build()
}
