//! In the network: each host hands over the sum of its ranks once, and the root takes the result.
//!
//! 1. The ranks of a host send their inputs to a member of the group, which combines them.
//! 2. The members hand over these sums, chunk by chunk, and aggregators combine them
//!    (`ringfold_innetwork::Group`). Without aggregators the members do so, in the same order.
//!
//! The root must be a member. On one host it combines the inputs of all ranks.
//!
//! Steps: 2 for each level of aggregators, and 1 more within hosts. Sent by each rank: the buffer
//! once. Pipelined in chunks.
//!
//! Source: Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", 2016.

use super::hierarchical;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams};
use crate::in_network::{self, LaneRank, Network};
use crate::rails;
use crate::schedule::{Builder, Schedule};
use ringfold_types::{Collective, Slice};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Reduce,
    name: "in_network",
    needs: Needs::Provider { is_possible: in_network::is_possible },
    pattern: Pattern::Levels(in_network::price),
    schedule,
    stated: in_network::stated,
    moved: Moved::sums,
    stays_on_rail: rails::always,
};

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let network = Network::new(&plan.call, plan.layout);
    if !network.is_complete() {
        return (hierarchical::ALGORITHM.schedule)(plan);
    }
    let mut steps = Builder::new(plan, ALGORITHM.name, network.lanes());
    for lane in 0..network.lanes() {
        let steps = steps.lane(lane);
        let rank = LaneRank::new(steps, &network, plan, lane);
        for index in 0..rank.pieces() {
            let result = rank.result(index);
            let is_root = plan.rank == plan.call.root;
            rank.give(
                steps,
                index,
                if is_root { result } else { Slice { offset: 0, len: 0, ..result } },
            );
        }
    }
    steps.build()
}
