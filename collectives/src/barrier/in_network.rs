//! In the network: one rank of each host tells an aggregator that its host has entered.
//!
//! 1. Every rank sends the member of its host a token.
//! 2. The members hand over an empty chunk (`ringfold_innetwork::Group`). Its result says that all
//!    have entered. Without aggregators the members send tokens along the same tree.
//! 3. Each member sends a token to all other ranks of its host.
//!
//! Steps: 2 for each level of aggregators, and 2 more within hosts. Sent by a member on a host of k
//! ranks: k tokens.
//!
//! Source: Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", 2016.

use ringfold_types::Collective;

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams};
use crate::in_network::{self, Network};
use crate::offload::offload;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Barrier,
    name: "in_network",
    needs: Needs::Provider { is_possible: in_network::is_possible },
    pattern: Pattern::Levels(in_network::price),
    schedule,
    stated: in_network::stated,
    moved: Moved::results,
    stays_on_rail: rails::always,
};

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let network = Network::new(&plan.call, plan.layout);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let (sent, received) = (steps.scratch(1), steps.scratch(1));
    let team = network.team(0, plan.rank);
    let (member, others) = (team.ranks[0], &team.ranks[1..]);
    if member != plan.rank {
        steps.send(member, sent);
        steps.recv(member, received);
        return steps.build();
    }
    others.iter().for_each(|other| steps.recv(*other, received));
    if plan.layout.hosts() > 1 {
        network.join(&mut steps, 0, plan.rank, (1, 1));
        offload(&mut steps, sent, received);
    }
    others.iter().for_each(|other| steps.send(*other, received));
    steps.build()
}
