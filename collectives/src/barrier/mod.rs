//! Barrier: no rank leaves before all ranks have entered.

mod dissemination;
pub(crate) mod hierarchical;
mod in_network;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] =
    &[dissemination::ALGORITHM, hierarchical::ALGORITHM, in_network::ALGORITHM];
