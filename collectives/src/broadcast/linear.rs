//! Linear: the root sends its buffer to every other rank. For messages so short that only the
//! number of steps counts.
//!
//! The root posts all sends, and the others wait for the root alone.
//!
//! Steps: 1. Sent by the root: n-1 times the buffer.
//!
//! Source: a flat tree.

use ringfold_types::{Buffer, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams};
use crate::fan::{self, stated};
use crate::rails;
use crate::schedule::Schedule;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "linear",
    needs: Needs::Links,
    pattern: Pattern::AtRoot,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::at_root,
};

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let own = Slice::new(Buffer::Input, 0, plan.call.count);
    fan::schedule(ALGORITHM.name, plan, |_| own)
}
