//! Rank r gets block r of the root's input.

mod binomial;
mod linear;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[binomial::ALGORITHM, linear::ALGORITHM];
