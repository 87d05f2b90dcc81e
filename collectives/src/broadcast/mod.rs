//! Broadcast: every rank gets the root's input.

mod binomial;
mod chain;
pub(crate) mod hierarchical;
mod linear;
mod scatter_allgather;
mod single_copy;
mod staged;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    binomial::ALGORITHM,
    chain::ALGORITHM,
    scatter_allgather::ALGORITHM,
    linear::ALGORITHM,
    staged::ALGORITHM,
    single_copy::ALGORITHM,
    hierarchical::ALGORITHM,
];
