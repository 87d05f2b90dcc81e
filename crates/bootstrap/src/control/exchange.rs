//! The limits of an exchange of bytes between all ranks, and its errors.

use std::sync::Arc;
use std::time::Duration;

use ringfold_types::limits;

use crate::arbiter::failure_cause::FailureCause;

/// Why an exchange over the control plane failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The job has failed.
    #[error("the job has failed: {0}")]
    Failed(Arc<FailureCause>),
    /// Not every rank contributed in time.
    #[error("not every rank took part in the exchange within {0:?}")]
    Timeout(Duration),
    /// The contributions of all ranks together would not fit one control message.
    #[error("{bytes} bytes are too many for an exchange; at most {max} for this number of ranks")]
    TooLarge {
        /// Bytes of this rank's contribution.
        bytes: usize,
        /// Bytes that each rank may contribute.
        max: usize,
    },
    /// The control thread has ended, because rank 0 has left the job.
    #[error("rank 0 has left the job, and exchanges pass through rank 0")]
    CoordinatorGone,
}

/// The number of bytes that each of `size` ranks may put into an exchange.
pub(crate) const fn contribution_bytes_max(size: usize) -> usize {
    const PER_RANK: usize = 5; // the longest encoding of a length below 2^32
    let share = (limits::CONTROL_BYTES_MAX - 16) / if size == 0 { 1 } else { size };
    share - PER_RANK
}
