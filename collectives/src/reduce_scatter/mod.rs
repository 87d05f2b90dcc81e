//! Reduce-scatter: every rank gets its block of the reduction of all inputs.

mod direct;
mod halving;
pub(crate) mod hierarchical;
mod ring;
mod staged;

use crate::algorithm::Algorithm;
use crate::uneven::Uneven;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    ring::ALGORITHM,
    halving::ALGORITHM,
    direct::ALGORITHM,
    staged::ALGORITHM,
    hierarchical::ALGORITHM,
];

/// Those for blocks of different lengths.
pub(crate) const UNEVEN: &[Uneven] = &[ring::UNEVEN, direct::UNEVEN, staged::UNEVEN];
