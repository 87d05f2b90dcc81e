//! Who talks to whom: integers only, no schedules.

pub(crate) mod double_tree;
pub(crate) mod hypercube;
pub(crate) mod ring;
pub(crate) mod tree;
