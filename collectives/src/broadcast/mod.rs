//! Broadcast: every rank gets the root's input.

mod attached;
mod binomial;
mod chain;
mod scatter_allgather;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] =
    &[binomial::ALGORITHM, chain::ALGORITHM, scatter_allgather::ALGORITHM, attached::ALGORITHM];
