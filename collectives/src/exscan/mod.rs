//! Rank r gets the reduction of the inputs of the ranks before it, combined in rank order. Rank 0
//! gets nothing, and its output stays as it is.

mod chain;
mod recursive_doubling;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[recursive_doubling::ALGORITHM, chain::ALGORITHM];
