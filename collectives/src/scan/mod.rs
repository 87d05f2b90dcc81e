//! Rank r gets the reduction of the inputs of ranks 0 to r, combined in rank order.

pub(crate) mod chain;
mod recursive_doubling;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[recursive_doubling::ALGORITHM, chain::ALGORITHM];
