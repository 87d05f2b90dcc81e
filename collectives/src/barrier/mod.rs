//! Barrier: no rank leaves before all ranks have entered.

mod dissemination;
pub(crate) mod hierarchical;
mod in_network;
mod linear;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] =
    &[dissemination::ALGORITHM, linear::ALGORITHM, hierarchical::ALGORITHM, in_network::ALGORITHM];
