//! Reduce-scatter: every rank gets its block of the reduction of all inputs.

mod direct;
mod halving;
pub(crate) mod hierarchical;
mod ring;
mod staged;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    ring::ALGORITHM,
    halving::ALGORITHM,
    direct::ALGORITHM,
    staged::ALGORITHM,
    hierarchical::ALGORITHM,
];
