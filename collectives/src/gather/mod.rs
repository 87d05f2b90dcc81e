//! The root gets all inputs, in rank order.

mod binomial;
mod linear;
mod single_copy;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] =
    &[binomial::ALGORITHM, linear::ALGORITHM, single_copy::ALGORITHM];
