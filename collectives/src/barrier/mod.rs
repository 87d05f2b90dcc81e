//! No rank leaves before all have entered.

mod dissemination;

use crate::algorithm::Algorithm;

pub(crate) const ALGORITHMS: &[Algorithm] = &[dissemination::ALGORITHM];
