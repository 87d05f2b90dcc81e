//! Chooses an algorithm and its chunks. Of the algorithms that the user allows, `select` takes the
//! fastest by measurement. Without a measurement it takes the cheapest by `cost`.

mod constraints;
mod measured;
mod possible;

use alloc::vec::Vec;
use core::time::Duration;

use ringfold_topology::{Layout, PeerMemory};
use ringfold_types::{Call, Collective};

use crate::algorithm::Algorithm;
use crate::blocks::Blocks;
use crate::connections::DIRECT_MAX;
use crate::cost::price;
use crate::uneven::{Uneven, even_call, measured_call};
use possible::is_automatic;

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
    let question = Question { call, blocks: None, layout };
    choose(&question, constraints, measured).unwrap_or_else(|| &Algorithm::of(call.collective)[0])
}

/// Like `select`, for blocks whose lengths may differ. Measurements of equal blocks count if no
/// block is longer than twice the average.
///
/// # Panics
/// If `layout` has no ranks, or the collective has no algorithm for such blocks.
#[must_use]
pub fn select_uneven(
    call: &Call,
    blocks: &Blocks,
    layout: &Layout,
    constraints: &Constraints,
    measured: &Measurements,
) -> &'static Uneven {
    let question = Question { call, blocks: Some(blocks), layout };
    let chosen = choose(&question, constraints, measured);
    let named = chosen.and_then(|it| Uneven::named(call.collective, it.name));
    named.unwrap_or_else(|| &Uneven::of(call.collective)[0])
}

/// A call whose algorithm is to be chosen.
struct Question<'q> {
    call: &'q Call,
    /// The blocks, if their lengths may differ.
    blocks: Option<&'q Blocks>,
    layout: &'q Layout,
}

impl Question<'_> {
    /// The call on equal blocks for which the facts of `algorithm` hold.
    fn even_call(&self, algorithm: &Algorithm) -> Call {
        self.blocks.map_or(*self.call, |blocks| even_call(algorithm, self.call, blocks))
    }

    fn is_possible(&self, algorithm: &Algorithm) -> bool {
        let fits =
            self.blocks.is_none() || Uneven::named(algorithm.collective, algorithm.name).is_some();
        fits && is_possible(algorithm, &self.even_call(algorithm), self.layout)
    }

    fn price(&self, algorithm: &Algorithm) -> Duration {
        let chunk = chunk_len(self.call, self.layout);
        price(algorithm, &self.even_call(algorithm), self.layout, chunk)
    }

    /// The call on equal blocks whose measurements apply.
    fn measured_call(&self) -> Option<Call> {
        self.blocks.map_or(Some(*self.call), |blocks| measured_call(self.call, blocks))
    }

    fn cheapest(&self, fits: impl Fn(&Algorithm) -> bool) -> Option<&'static Algorithm> {
        let known = Algorithm::of(self.call.collective).iter().filter(|it| fits(it));
        known.min_by_key(|algorithm| self.price(algorithm))
    }

    /// The cheapest algorithm whose messages stay on their rails. `None` where rails are not known
    /// to be apart.
    fn cheapest_on_rails(&self, fits: impl Fn(&Algorithm) -> bool) -> Option<&'static Algorithm> {
        if !self.layout.keeps_rails_apart() {
            return None;
        }
        let mut known: Vec<&Algorithm> = Algorithm::of(self.call.collective).iter().collect();
        known.retain(|algorithm| fits(algorithm));
        known.sort_by_cached_key(|algorithm| self.price(algorithm));
        known.into_iter().find(|it| (it.stays_on_rail)(&self.even_call(it), self.layout))
    }
}

/// Chooses an algorithm. `None` if none is possible.
fn choose(
    question: &Question<'_>,
    constraints: &Constraints,
    measured: &Measurements,
) -> Option<&'static Algorithm> {
    let layout = question.layout;
    let possible = |algorithm: &Algorithm| question.is_possible(algorithm);
    let allowed = |algorithm: &Algorithm| possible(algorithm) && constraints.allow(algorithm);
    let automatic = |algorithm: &Algorithm| allowed(algorithm) && is_automatic(algorithm, layout);
    let typical = question.measured_call();
    if let Some(fastest) = typical.and_then(|call| measured.fastest(&call, layout, automatic)) {
        return Some(fastest);
    }
    let single_copy = typical.and_then(|call| single_copy(&call, layout));
    if let Some(algorithm) = single_copy.filter(|it| allowed(it)) {
        return Some(algorithm);
    }
    let estimated = |algorithm: &Algorithm| {
        let suits = algorithm.suits(layout)
            && has_few_links(algorithm, layout)
            && suits_staging(algorithm, question.call, layout);
        automatic(algorithm) && suits && algorithm.has_estimate(layout)
    };
    // Where the user allows only algorithms for shared memory, calls without it are free.
    question
        .cheapest_on_rails(estimated)
        .or_else(|| question.cheapest(estimated))
        .or_else(|| question.cheapest(allowed))
        .or_else(|| question.cheapest(possible))
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
    Question { call, blocks: None, layout }
        .cheapest(fits)
        .filter(|algorithm| algorithm.needs_windows())
        .unwrap_or_else(|| select(call, layout, constraints, measured))
}

/// Bytes of the shortest messages that ranks copy from each other's memory. Shorter ones fit the
/// cache so well that two copies are faster than a call of the kernel.
const SINGLE_COPY_BYTES_MIN: usize = 64 * 1024;

/// Bytes of the longest buffers of such calls. Longer ones go through staging buffers past the
/// caches, while the kernel copies through the caches.
const SINGLE_COPY_BUFFER_BYTES_MAX: usize = 16 << 20;

/// The same where one of the two ranks makes all copies. Longer ones go through a ring, which one
/// rank fills while the other empties it.
const LONE_COPY_BYTES_MAX: usize = 1 << 20;

/// The single-copy algorithm, where it needs no measurement to be faster than others: for two ranks
/// with a core each. With more readers of one memory, the kernel makes them wait for each other
/// (Chakraborty, Subramoni and Panda, "Contention-aware kernel-assisted MPI collectives for
/// multi-/many-core systems", 2017).
fn single_copy(call: &Call, layout: &Layout) -> Option<&'static Algorithm> {
    let message = call.count.saturating_mul(call.data_type.bytes());
    let bytes = buffer_bytes(call, layout.size());
    let most = match call.collective {
        Collective::Broadcast | Collective::Gather => LONE_COPY_BYTES_MAX,
        _ => SINGLE_COPY_BUFFER_BYTES_MAX,
    };
    let fits = message >= SINGLE_COPY_BYTES_MIN && bytes <= most;
    if !fits
        || layout.peer_memory() < PeerMemory::Fast
        || layout.size() != 2
        || layout.occupancy().is_oversubscribed()
    {
        return None;
    }
    Algorithm::of(call.collective).iter().find(|algorithm| algorithm.is_single_copy())
}

/// Bytes of the shortest broadcasts through a staging buffer. The root waits in each call until the
/// others have begun it. By links it need not, so a row of short broadcasts is faster.
const STAGED_BROADCAST_BYTES_MIN: usize = 128 * 1024;

/// Whether the price of `algorithm` may decide for this call. Broadcasts through a staging buffer
/// were measured on ranks that share CPUs. Two ranks copy as often by their link.
fn suits_staging(algorithm: &Algorithm, call: &Call, layout: &Layout) -> bool {
    if algorithm.collective != Collective::Broadcast || !algorithm.needs_staging() {
        return true;
    }
    let bytes = call.count.saturating_mul(call.data_type.bytes());
    let shares_cpus = layout.occupancy().is_oversubscribed();
    layout.size() > 2 && shares_cpus && bytes >= STAGED_BROADCAST_BYTES_MIN
}

/// Whether no rank needs links to more others than it should have. The data of an all-to-all go
/// from every rank to every other.
fn has_few_links(algorithm: &Algorithm, layout: &Layout) -> bool {
    let is_to_all = algorithm.collective == Collective::AllToAll;
    layout.size() <= DIRECT_MAX || is_to_all || !algorithm.has_many_links()
}

#[cfg(test)]
mod tests;
