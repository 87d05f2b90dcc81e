//! Who talks to whom: integers only, no schedules.

pub(crate) mod dissemination;
pub(crate) mod double_tree;
pub(crate) mod halves;
pub(crate) mod host_tree;
pub(crate) mod hypercube;
pub(crate) mod ring;
pub(crate) mod tree;
