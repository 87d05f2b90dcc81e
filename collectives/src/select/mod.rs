//! Chooses an algorithm and its chunks. Of the algorithms that the user allows, `select` takes the
//! fastest by measurement. Without a measurement it takes the cheapest by `cost`.

mod constraints;
mod measured;
mod possible;

use alloc::vec::Vec;

use ringfold_topology::{Layout, PeerMemory};
use ringfold_types::{Call, Collective};

use crate::algorithm::Algorithm;
use crate::connections::DIRECT_MAX;
use crate::cost::price;
use possible::is_exact;

pub use constraints::{Constraints, InvalidConstraints};
pub use measured::{InvalidMeasurements, Measurements, Row, buffer_bytes};
pub use possible::{chunk_len, is_possible, sum_bytes};

/// Chooses the algorithm that is likely to finish `call` first. All ranks choose the same.
///
/// # Panics
/// If `layout` has no ranks.
#[must_use]
pub fn select(
    call: &Call,
    layout: &Layout,
    constraints: &Constraints,
    measured: &Measurements,
) -> &'static Algorithm {
    if let Some(fastest) = measured.fastest(call, layout, constraints) {
        return fastest;
    }
    let possible = |algorithm: &Algorithm| is_possible(algorithm, call, layout);
    let allowed = |algorithm: &Algorithm| possible(algorithm) && constraints.allow(algorithm);
    if let Some(algorithm) = single_copy(call, layout).filter(|it| constraints.allow(it)) {
        return algorithm;
    }
    let estimated = |algorithm: &Algorithm| {
        let has_few_links = has_few_links(algorithm, layout.size());
        let is_exact = is_exact(algorithm, layout);
        allowed(algorithm) && has_few_links && is_exact && !algorithm.is_single_copy()
    };
    // Where the user allows only algorithms for shared memory, calls without it are free.
    cheapest_on_rails(call, layout, estimated)
        .or_else(|| cheapest(call, layout, estimated))
        .or_else(|| cheapest(call, layout, allowed))
        .or_else(|| cheapest(call, layout, possible))
        .unwrap_or_else(|| &Algorithm::of(call.collective)[0])
}

/// Like `select`, for a call whose buffers are windows: memory that every rank has mapped.
/// Measurements without windows do not apply to algorithms for windows. If `layout` shares memory,
/// the choice may still be an algorithm that uses staging buffers.
///
/// # Panics
/// If `layout` has no ranks.
#[must_use]
pub fn select_in_windows(
    call: &Call,
    layout: &Layout,
    constraints: &Constraints,
    measured: &Measurements,
) -> &'static Algorithm {
    let fits = |algorithm: &Algorithm| {
        let is_there = algorithm.needs_windows() || is_possible(algorithm, call, layout);
        constraints.allow(algorithm) && is_there
    };
    cheapest(call, layout, fits)
        .filter(|algorithm| algorithm.needs_windows())
        .unwrap_or_else(|| select(call, layout, constraints, measured))
}

fn cheapest(
    call: &Call,
    layout: &Layout,
    fits: impl Fn(&Algorithm) -> bool,
) -> Option<&'static Algorithm> {
    let known = Algorithm::of(call.collective).iter().filter(|algorithm| fits(algorithm));
    known.min_by_key(|algorithm| price(algorithm, call, layout, chunk_len(call, layout)))
}

/// The cheapest algorithm whose messages stay on their rails. `None` where rails are not known to
/// be apart.
fn cheapest_on_rails(
    call: &Call,
    layout: &Layout,
    fits: impl Fn(&Algorithm) -> bool,
) -> Option<&'static Algorithm> {
    if !layout.keeps_rails_apart() {
        return None;
    }
    let mut known: Vec<&Algorithm> = Algorithm::of(call.collective).iter().collect();
    known.retain(|algorithm| fits(algorithm));
    known.sort_by_cached_key(|algorithm| price(algorithm, call, layout, chunk_len(call, layout)));
    known.into_iter().find(|it| it.crossing(call, layout).off_rail.messages == 0)
}

/// Bytes of the shortest messages that ranks copy from each other's memory. Shorter ones fit the
/// cache so well that two copies are faster than a call of the kernel.
const SINGLE_COPY_BYTES_MIN: usize = 64 * 1024;

/// Bytes of the longest buffers of such calls. Longer ones go through staging buffers past the
/// caches, while the kernel copies through the caches.
const SINGLE_COPY_BUFFER_BYTES_MAX: usize = 16 << 20;

/// The single-copy algorithm, where it needs no measurement to be faster than others: for two ranks
/// with a core each. With more readers of one memory, the kernel makes them wait for each other
/// (Chakraborty, Subramoni and Panda, "Contention-aware kernel-assisted MPI collectives for
/// multi-/many-core systems", 2017).
fn single_copy(call: &Call, layout: &Layout) -> Option<&'static Algorithm> {
    let message = call.count.saturating_mul(call.data_type.bytes());
    let bytes = buffer_bytes(call, layout.size());
    let fits = message >= SINGLE_COPY_BYTES_MIN && bytes <= SINGLE_COPY_BUFFER_BYTES_MAX;
    if !fits
        || layout.peer_memory() < PeerMemory::Fast
        || layout.size() != 2
        || layout.occupancy().is_oversubscribed()
    {
        return None;
    }
    Algorithm::of(call.collective).iter().find(|algorithm| algorithm.is_single_copy())
}

/// Whether no rank needs links to more others than it should have. The data of an all-to-all go
/// from every rank to every other.
fn has_few_links(algorithm: &Algorithm, ranks: usize) -> bool {
    let is_to_all = algorithm.collective == Collective::AllToAll;
    ranks <= DIRECT_MAX || is_to_all || !algorithm.has_many_links()
}

#[cfg(test)]
mod tests;
