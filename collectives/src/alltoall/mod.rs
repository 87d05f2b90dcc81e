//! Rank r gets block r of every rank's input, in rank order.
//!
//! By nature every rank has something for every other. So most algorithms need a link between any
//! two ranks, and no bound on links applies to them.

mod linear;
mod pairwise;

use ringfold_types::{Buffer, Rank, Slice};

use crate::algorithm::{Algorithm, ScheduleParams};

pub(crate) const ALGORITHMS: &[Algorithm] = &[linear::ALGORITHM, pairwise::ALGORITHM];

/// The blocks of one rank.
#[derive(Clone, Copy)]
struct Blocks {
    count: usize,
}

impl Blocks {
    const fn of(plan: &ScheduleParams<'_>) -> Self {
        Self { count: plan.call.count }
    }

    /// The block of the input that goes to a rank.
    const fn to(self, rank: Rank) -> Slice {
        Slice::new(Buffer::Input, rank.index() * self.count, self.count)
    }

    /// The block of the output that comes from a rank.
    const fn from(self, rank: Rank) -> Slice {
        Slice::new(Buffer::Output, rank.index() * self.count, self.count)
    }
}
