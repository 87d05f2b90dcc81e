//! The chunks of a call, and whether an algorithm can perform it on ordinary buffers.

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::algorithm::{Algorithm, Needs};
use crate::wire::among_all;

/// Bytes of the partial results in a chunk of a message of ordinary length. A chunk stays in the
/// cache between its arrival and the next send, and is long enough to hide the cost of a message.
const CHUNK_BYTES: usize = 64 * 1024;

/// The same for ranks that use RDMA, where a message costs more.
const RDMA_CHUNK_BYTES: usize = 256 * 1024;

/// Steps of a lane beyond which chunks grow: making and reading a longer schedule would cost more
/// than it saves.
pub(super) const STEPS_WANTED: usize = 8192;

/// Pieces of a call through staging buffers, times ranks. Each piece takes about five steps for
/// each rank.
const PIECES_MOST: usize = STEPS_WANTED / 5;

/// Bytes of a partial result as it travels: between hosts, or on one host within it.
#[must_use]
pub fn sum_bytes(call: &Call, layout: &Layout) -> usize {
    among_all(call, layout).data_type(call).bytes()
}

/// Elements that pipelines pass on at a time. All ranks choose the same number.
#[must_use]
pub fn chunk_len(call: &Call, layout: &Layout) -> usize {
    let size = layout.size();
    let total = call.input_len(size).max(call.output_len(size));
    // Rings take about four steps for a chunk, trees one per neighbour and two more.
    let steps_each = 4 + size.max(1).ilog2() as usize;
    let chunks = STEPS_WANTED / steps_each;
    let bytes = sum_bytes(call, layout);
    let wanted = match layout.frame_bytes() {
        Some(bytes) => bytes,
        None if layout.has_rdma() => RDMA_CHUNK_BYTES,
        None => CHUNK_BYTES,
    };
    (wanted / bytes).max(total.div_ceil(chunks).next_power_of_two())
}

/// Whether an algorithm may be chosen without being asked for. Only users may choose aggregators
/// that are inexact or given up.
pub(super) fn is_automatic(algorithm: &Algorithm, layout: &Layout) -> bool {
    !algorithm.needs_provider() || layout.aggregation().is_none_or(|it| it.is_automatic)
}

/// Whether `algorithm` can perform `call` on ordinary buffers.
#[must_use]
pub fn is_possible(algorithm: &Algorithm, call: &Call, layout: &Layout) -> bool {
    match algorithm.needs {
        Needs::Links | Needs::Rendezvous => true,
        Needs::Windows => false,
        Needs::Provider { is_possible } => is_possible(call, layout),
        Needs::Staging { .. } => {
            let size = layout.size();
            let pieces = || algorithm.pieces(call, size, chunk_len(call, layout));
            layout.shares_memory() && pieces() * size <= PIECES_MOST
        }
    }
}
