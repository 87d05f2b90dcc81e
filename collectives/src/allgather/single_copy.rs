//! Direct all-gather with rendezvous sends: every rank copies each other block straight from its
//! sender's memory, where the transport lets ranks read it.
//!
//! Steps: 1. Sent by each rank: n-1 blocks.
//!
//! Source: `direct`, by single copies.

use ringfold_types::Collective;

use super::direct::{named, stated};
use crate::algorithm::{Algorithm, Moved, Needs, ScheduleParams, Way};
use crate::blocks::Blocks;
use crate::rails;
use crate::schedule::Schedule;
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "single_copy",
    needs: Needs::Rendezvous,
    way: Way::Direct,
    schedule: |plan| in_blocks(plan, &plan.equal_blocks()),
    stated,
    moved: Moved::results,
    stays_on_rail: rails::among_all,
};

pub(super) const UNEVEN: Uneven = Uneven { algorithm: &ALGORITHM, schedule: in_blocks };

fn in_blocks(plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
    named(ALGORITHM.name, plan, blocks)
}
