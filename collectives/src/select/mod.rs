//! Which algorithm, and in which chunks: of those that the user allows, the one that was measured
//! to be the fastest, or where nothing was measured the cheapest by `cost`.

mod constraints;
mod measured;

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::limits::FRAME_BYTES_MAX;
use ringfold_types::{Call, Collective};

use crate::algorithm::Algorithm;
use crate::cost::price;
use crate::schedule::Form;
use crate::stage::pieces;

pub use constraints::{Constraints, InvalidConstraints};
pub use measured::{InvalidMeasurements, Measurements, Row, buffer_bytes};

/// Bytes of accumulators in a chunk of a message of ordinary length: small enough to stay in the
/// cache between arriving and being passed on, large enough for the cost of a message not to
/// matter.
const CHUNK_BYTES: usize = 64 * 1024;

/// The same of ranks that reach each other by RDMA, where a message costs more: as measured over
/// soft-RoCE.
const RDMA_CHUNK_BYTES: usize = 256 * 1024;

/// Steps of a lane that chunks grow for: a longer schedule would take longer to make and to read
/// than it saves.
const STEPS_WANTED: usize = 8192;

/// Ranks up to which each may have links to all others. Each link takes memory and descriptors of
/// both ends, so that those of all pairs would soon take more than the call is worth.
const DIRECT_RANKS_MAX: usize = 64;

/// Pieces of a staged call, times ranks: each takes about five steps for each rank.
const PIECES_MOST: usize = STEPS_WANTED / 5;

/// The algorithm that is likely to finish `call` first. All ranks choose the same.
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
    let estimated = |algorithm: &Algorithm| {
        let has_few_links = layout.size() <= DIRECT_RANKS_MAX || !algorithm.is_direct();
        allowed(algorithm) && has_few_links && !algorithm.is_attached()
    };
    // Where only algorithms for shared memory are wanted, other calls are free.
    cheapest_on_rails(call, layout, estimated)
        .or_else(|| cheapest(call, layout, estimated))
        .or_else(|| cheapest(call, layout, allowed))
        .or_else(|| cheapest(call, layout, possible))
        .unwrap_or_else(|| &Algorithm::of(call.collective)[0])
}

/// Whether `algorithm` can perform `call` on ordinary buffers.
#[must_use]
pub fn is_possible(algorithm: &Algorithm, call: &Call, layout: &Layout) -> bool {
    let is_staged = algorithm.needs_stage();
    let is_short = || {
        let (size, chunk) = (layout.size(), chunk_len(call, layout));
        pieces(call, size, chunk) * size <= PIECES_MOST
    };
    !algorithm.needs_windows() && (!is_staged || layout.shares_memory() && is_short())
}

/// As `select`, for a call whose buffers are windows: memory that every rank has mapped. What was
/// measured without them says nothing of algorithms for them. If `layout` shares memory, a call may
/// go through stages all the same.
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

/// The cheapest that leaves no rail; nothing where rails are not known to be apart.
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

/// The shortest messages for which attached algorithms are tried: others fit the cache so well that
/// to copy them twice is faster than a call of the kernel.
const ATTACHED_BYTES_MIN: usize = 32 * 1024;

/// The longest buffers: longer ones are passed through stages past the caches, where the kernel
/// goes through them.
const ATTACHED_BUFFER_BYTES_MAX: usize = 32 << 20;

/// Whether ranks that share memory try an attached algorithm for such a call. Only for calls that
/// can be repeated: what they write is not what they read.
#[must_use]
pub fn may_be_attached(call: &Call, ranks: usize) -> bool {
    let is_repeatable = matches!(call.collective, Collective::AllGather | Collective::Broadcast);
    let message = call.count.saturating_mul(call.data_type.bytes());
    let fits =
        message >= ATTACHED_BYTES_MIN && buffer_bytes(call, ranks) <= ATTACHED_BUFFER_BYTES_MAX;
    let has_few_links = ranks <= DIRECT_RANKS_MAX || call.collective == Collective::Broadcast;
    ranks > 1 && is_repeatable && fits && has_few_links
}

/// Elements that are passed on at a time. All ranks choose the same.
#[must_use]
pub fn chunk_len(call: &Call, layout: &Layout) -> usize {
    let size = layout.size();
    let total = call.input_len(size).max(call.output_len(size));
    // Rings take about four steps for a chunk, trees one per neighbour and two more.
    let steps_each = 4 + size.max(1).ilog2() as usize;
    let chunks = STEPS_WANTED / steps_each;
    let bytes = Form::Accumulator.data_type(call).bytes();
    let wanted = match (layout.has_rdma(), layout.hosts()) {
        (true, _) => RDMA_CHUNK_BYTES,
        (false, 0..=1) => CHUNK_BYTES,
        // What the receiver has at once when it wakes.
        (false, _) => FRAME_BYTES_MAX,
    };
    (wanted / bytes).max(total.div_ceil(chunks).next_power_of_two())
}

#[cfg(test)]
mod tests;
