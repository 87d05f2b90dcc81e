//! Linear: the root sends each rank its block. For long messages, where each byte should travel
//! once.
//!
//! The root posts all sends, and the others wait for the root alone.
//!
//! Steps: 1. Sent by the root: n-1 blocks.
//!
//! Source: a flat tree.

use ringfold_types::{Buffer, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams};
use crate::fan::{self, stated};
use crate::rails;
use crate::schedule::Schedule;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Scatter,
    name: "linear",
    needs: Needs::Links,
    pattern: Pattern::AtRoot,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::at_root,
};

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let count = plan.call.count;
    let block = |rank: Rank| Slice::new(Buffer::Input, rank.index() * count, count);
    fan::schedule(ALGORITHM.name, plan, block)
}
