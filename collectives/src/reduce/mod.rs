//! Reduce: the root gets the reduction of all inputs.

mod binomial;
mod ring;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[binomial::ALGORITHM, ring::ALGORITHM];
