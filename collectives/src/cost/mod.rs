//! The time that a call would take by an algorithm: an estimate, good enough to put algorithms in
//! order.
//!
//! ```text
//! steps * latency + messages * overhead + bytes on the wire * time per byte + bytes combined
//! ```
//!
//! Where ranks share CPUs, a step waits until the other ranks of a CPU have run, and the work is
//! that of all ranks, if this is more for each CPU than that of the busiest rank.
//!
//! `Algorithm` states steps and elements, and the way in which they move. `traffic` derives a
//! rank's messages from that, and `bill` prices them by `rates`. Integers only: all ranks must come
//! to the same result.

pub(crate) mod bill;
pub(crate) mod rates;
mod traffic;

use core::time::Duration;

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::algorithm::{Algorithm, Way};
use bill::{Bill, Site};

/// The time that `call` would take by `algorithm` if pipelines pass on `chunk` elements at a time.
///
/// # Panics
/// If `layout` has no ranks.
#[must_use]
pub fn price(algorithm: &Algorithm, call: &Call, layout: &Layout, chunk: usize) -> Duration {
    let picoseconds = match algorithm.way {
        Way::Levels(price) => price(call, layout, chunk),
        _ => Bill::of(algorithm, call, &Site::of(layout), chunk).total(layout),
    };
    Duration::from_nanos(u64::try_from(picoseconds / 1000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
