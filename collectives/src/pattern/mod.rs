//! Who talks to whom: integers only, no schedules.

pub(crate) mod ring;
