//! Reduce: the root gets the reduction of all inputs.

mod binomial;
pub(crate) mod hierarchical;
mod in_network;
mod linear;
mod ring;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[
    binomial::ALGORITHM,
    ring::ALGORITHM,
    linear::ALGORITHM,
    hierarchical::ALGORITHM,
    in_network::ALGORITHM,
];
