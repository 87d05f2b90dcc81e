//! Estimates the time that a call takes by an algorithm. The estimate is good enough to put
//! algorithms in order.
//!
//! ```text
//! steps * latency + messages * overhead + bytes on the wire * time per byte + bytes combined
//! ```
//!
//! Where ranks share CPUs, a step waits until the other ranks of a CPU have run. The work is then
//! that of all ranks, if this is more for each CPU than that of the busiest rank. Containers of one
//! machine share its CPUs too: the work is that of all ranks, a step wakes a rank if it has waited
//! for a root or its neighbours in a chain or a tree, and a part of a network's time adds to that.
//!
//! `Algorithm` states steps, elements and the pattern in which data moves. `traffic` derives a
//! rank's messages from them, and `bill` prices these by `rates`. All numbers are integers, so that
//! all ranks get the same result.

pub(crate) mod bill;
pub(crate) mod rates;
mod traffic;

use core::time::Duration;

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::algorithm::{Algorithm, Pattern};
use bill::{Bill, Site};

/// Estimates the time of `call` by `algorithm`, if pipelines pass on `chunk` elements at a time.
///
/// # Panics
/// If `layout` has no ranks.
#[must_use]
pub fn price(algorithm: &Algorithm, call: &Call, layout: &Layout, chunk: usize) -> Duration {
    let picoseconds = match algorithm.pattern {
        Pattern::Levels(price) => price(call, layout, chunk),
        Pattern::Variants(all) => return price(cheapest(all, call, layout), call, layout, chunk),
        _ => Bill::of(algorithm, call, &Site::of(layout), chunk).total(layout),
    };
    Duration::from_nanos(u64::try_from(picoseconds / 1000).unwrap_or(u64::MAX))
}

/// The cheapest of the variants of an algorithm. They do not pipeline, and all ranks choose the
/// same, even if a call has other chunks.
pub(crate) fn cheapest(
    variants: &'static [Algorithm],
    call: &Call,
    layout: &Layout,
) -> &'static Algorithm {
    let by_price = variants.iter().min_by_key(|it| price(it, call, layout, usize::MAX));
    by_price.unwrap_or(&variants[0])
}

#[cfg(test)]
mod tests;
