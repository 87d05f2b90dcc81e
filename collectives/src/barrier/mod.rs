//! Barrier: no rank leaves before all ranks have entered.

mod dissemination;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[dissemination::ALGORITHM];
