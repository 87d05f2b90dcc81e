//! Rank r gets block r of the root's input.

mod binomial;
mod linear;
mod single_copy;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] =
    &[binomial::ALGORITHM, linear::ALGORITHM, single_copy::ALGORITHM];
