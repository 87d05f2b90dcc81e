//! In the network: each host hands over the sum of its ranks once, and takes the result once.
//!
//! 1. The ranks of a host send their inputs to a member of the group, which combines them.
//! 2. The members hand over these sums, chunk by chunk, and aggregators combine them
//!    (`ringfold_innetwork::Group`). Without aggregators the members do so, in the same order.
//! 3. Each member sends the results to the ranks of its host.
//!
//! With several groups, each has a part of the buffer and a lane of its own.
//!
//! Steps: 2 for each level of aggregators, and 2 more within hosts. Sent by a member on a host of k
//! ranks: the buffer to its aggregator, and k-1 times the buffer within its host. Pipelined in
//! chunks.
//!
//! Source: Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", 2016.

use ringfold_types::Collective;

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams};
use crate::in_network::{self, LaneRank, Network};
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "in_network",
    needs: Needs::Provider { is_possible: in_network::is_possible },
    pattern: Pattern::Levels(in_network::price),
    schedule,
    stated: in_network::stated,
    moved: Moved::sums_then_results,
    stays_on_rail: rails::always,
};

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let network = Network::new(&plan.call, plan.layout);
    let mut steps = Builder::new(plan, ALGORITHM.name, network.lanes());
    for lane in 0..network.lanes() {
        let steps = steps.lane(lane);
        let rank = LaneRank::new(steps, &network, plan, lane);
        // A member has the result of a piece when it hands over the one a window later.
        for turn in 0..rank.pieces() + network.window() {
            let done = turn.checked_sub(network.window());
            if turn < rank.pieces() && !rank.is_member() {
                rank.give(steps, turn, rank.result(turn));
            }
            done.into_iter().for_each(|index| rank.share(steps, index));
            if turn < rank.pieces() && rank.is_member() {
                rank.give(steps, turn, rank.result(turn));
            }
        }
    }
    steps.build()
}
