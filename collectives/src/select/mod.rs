//! Which algorithm, and in which chunks: of those that the user allows, the one that was measured
//! to be the fastest, or where nothing was measured the cheapest by `cost`.

mod constraints;
mod measured;

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::algorithm::Algorithm;
use crate::cost::price;
use crate::schedule::Form;

pub use constraints::{Constraints, InvalidConstraints};
pub use measured::{InvalidMeasurements, Measurements, Row, buffer_bytes};

/// Bytes of accumulators in a chunk of a message of ordinary length: small enough to stay in the
/// cache between arriving and being passed on, large enough for the cost of a message not to
/// matter.
const CHUNK_BYTES: usize = 64 * 1024;

/// Steps of a lane that chunks grow for: a longer schedule would take longer to make and to read
/// than it saves.
const STEPS_WANTED: usize = 8192;

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
    let known = Algorithm::of(call.collective);
    let chunk = chunk_len(call, layout);
    let allowed = known.iter().filter(|algorithm| constraints.allow(algorithm));
    // Parsed constraints leave something.
    allowed.min_by_key(|algorithm| price(algorithm, call, layout, chunk)).unwrap_or(&known[0])
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
    (CHUNK_BYTES / bytes).max(total.div_ceil(chunks).next_power_of_two())
}

#[cfg(test)]
mod tests;
