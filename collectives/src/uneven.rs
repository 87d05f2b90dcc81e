//! Algorithms that also work on blocks of different lengths. All ranks know all lengths.

use ringfold_types::Call;

use crate::algorithm::{Algorithm, Pattern, ScheduleParams};
use crate::blocks::Blocks;
use crate::schedule::Schedule;

/// An algorithm that also works on blocks of different lengths.
#[derive(Clone, Copy, Debug)]
pub struct Uneven {
    /// The algorithm, for blocks of equal length.
    pub algorithm: &'static Algorithm,
    /// Makes one rank's schedule for any blocks.
    pub(crate) schedule: fn(&ScheduleParams<'_>, &Blocks) -> Schedule,
}

impl Uneven {
    /// Makes one rank's schedule. The call's count is the length of the longest block.
    ///
    /// # Panics
    /// If there is not one block for each rank.
    #[must_use]
    pub fn schedule(&self, plan: &ScheduleParams<'_>, blocks: &Blocks) -> Schedule {
        assert_eq!(blocks.size(), plan.size(), "one block for each rank");
        (self.schedule)(plan, blocks).in_blocks(blocks)
    }
}

/// The call on equal blocks whose measurements apply to `blocks`. `None` if a block is longer than
/// twice the average.
#[must_use]
pub fn measured_call(call: &Call, blocks: &Blocks) -> Option<Call> {
    let count = blocks.average();
    (blocks.longest() <= 2 * count).then_some(Call { count, ..*call })
}

/// The call on equal blocks that takes about as long by `algorithm` as `call` takes on `blocks`.
/// Around a ring blocks follow each other, so their average counts. Elsewhere ranks wait for the
/// longest.
#[must_use]
pub fn even_call(algorithm: &Algorithm, call: &Call, blocks: &Blocks) -> Call {
    let count = match algorithm.pattern {
        Pattern::Ring => blocks.average(),
        _ => blocks.longest(),
    };
    Call { count, ..*call }
}
