//! Every rank gets all inputs, in rank order.

mod bruck;
mod direct;
pub(crate) mod hierarchical;
mod recursive_doubling;
mod ring;
mod single_copy;
mod staged;

use crate::algorithm::Algorithm;
use crate::uneven::Uneven;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    ring::ALGORITHM,
    recursive_doubling::ALGORITHM,
    bruck::ALGORITHM,
    direct::ALGORITHM,
    staged::ALGORITHM,
    single_copy::ALGORITHM,
    hierarchical::ALGORITHM,
];

/// Those for blocks of different lengths.
pub(crate) const UNEVEN: &[Uneven] =
    &[ring::UNEVEN, bruck::UNEVEN, direct::UNEVEN, staged::UNEVEN, single_copy::UNEVEN];
