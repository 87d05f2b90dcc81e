//! The chunks of a call, and whether an algorithm can perform it on ordinary buffers.

use ringfold_topology::Layout;
use ringfold_types::Call;
use ringfold_types::limits::FRAME_BYTES_MAX;

use crate::algorithm::{Algorithm, Needs};
use crate::schedule::Form;

/// Bytes of accumulators in a chunk of a message of ordinary length: small enough to stay in the
/// cache between arriving and being passed on, large enough for the cost of a message not to
/// matter.
const CHUNK_BYTES: usize = 64 * 1024;

/// The same of ranks that reach each other by RDMA, where a message costs more: as measured over
/// soft-RoCE.
const RDMA_CHUNK_BYTES: usize = 256 * 1024;

/// Steps of a lane that chunks grow for: a longer schedule would take longer to make and to read
/// than it saves.
pub(super) const STEPS_WANTED: usize = 8192;

/// Pieces of a staged call, times ranks: each takes about five steps for each rank.
const PIECES_MOST: usize = STEPS_WANTED / 5;

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
        // The receiver has so many at once when it wakes.
        (false, _) => FRAME_BYTES_MAX,
    };
    (wanted / bytes).max(total.div_ceil(chunks).next_power_of_two())
}

/// Whether `algorithm` can perform `call` on ordinary buffers.
#[must_use]
pub fn is_possible(algorithm: &Algorithm, call: &Call, layout: &Layout) -> bool {
    match algorithm.needs {
        Needs::Links | Needs::Rendezvous => true,
        Needs::Windows => false,
        Needs::Stage { .. } => {
            let size = layout.size();
            let pieces = || algorithm.pieces(call, size, chunk_len(call, layout));
            layout.shares_memory() && pieces() * size <= PIECES_MOST
        }
    }
}
