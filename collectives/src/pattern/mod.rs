//! Communication patterns: the peers of each rank, as integers. No schedules.

pub(crate) mod digits;
pub(crate) mod dissemination;
pub(crate) mod double_tree;
pub(crate) mod halves;
pub(crate) mod host_tree;
pub(crate) mod hypercube;
pub(crate) mod ring;
pub(crate) mod tree;
