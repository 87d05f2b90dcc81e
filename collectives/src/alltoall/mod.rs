//! Rank r gets block r of every rank's input, in rank order.
//!
//! By nature every rank has something for every other. So most algorithms need a link between any
//! two ranks, and no bound on links applies to them.

mod bruck;
pub(crate) mod hierarchical;
mod linear;
mod pairwise;
mod single_copy;
mod staged;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    linear::ALGORITHM,
    pairwise::ALGORITHM,
    bruck::ALGORITHM,
    hierarchical::ALGORITHM,
    staged::ALGORITHM,
    single_copy::ALGORITHM,
];
