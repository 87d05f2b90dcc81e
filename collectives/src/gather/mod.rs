//! The root gets all inputs, in rank order.

mod binomial;
mod linear;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[binomial::ALGORITHM, linear::ALGORITHM];
