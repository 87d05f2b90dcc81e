//! Which algorithms there are, and what each costs.

use std::fmt::Write;

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Constraints, Measurements, select};
use ringfold_types::{Call, Collective};

use super::args::Question;
use super::proof::bytes_sent;

/// A table of all algorithms for the collective of `question`.
pub(super) fn algorithms(question: &Question) -> anyhow::Result<String> {
    let Question { call, layout, .. } = question;
    let size = layout.size();
    let chosen = select(call, layout, &Constraints::default(), &Measurements::default());
    let mut text = String::new();
    writeln!(text, "{call} on {}", question.place())?;
    let heads = ["algorithm", "steps", "peers"];
    writeln!(text, "  {:<20} {:>6} {:>6}   the busiest rank sends", heads[0], heads[1], heads[2])?;
    for algorithm in Algorithm::of(call.collective) {
        let stated = (algorithm.stated)(call, size);
        let (bytes, peers) = busiest(question, algorithm);
        write!(text, "{} ", if algorithm.name == chosen.name { '*' } else { ' ' })?;
        write!(text, "{:<20} {:>6} {peers:>6}   {bytes:>14} B", algorithm.name, stated.steps)?;
        let buffer = call.input_len(size).max(call.output_len(size)) * call.data_type.bytes();
        if buffer > 0 {
            write!(text, " = {:.2} x the buffer", bytes as f64 / buffer as f64)?;
        }
        text.push_str(match (algorithm.needs_windows(), algorithm.needs_stage()) {
            (true, _) => ", in windows only\n",
            (_, true) => ", in shared memory only\n",
            _ => "\n",
        });
    }
    writeln!(text, "* is what ringfold would choose there; steps are a chain of messages that")?;
    writeln!(text, "each wait for the one before; peers are those that one rank at most has to")?;
    writeln!(text, "be connected to. --algorithm NAME prints one.")?;
    Ok(text)
}

/// Bytes that the busiest rank sends, and the most peers that a rank has: exact where counts divide
/// evenly: measured where they do and all is one chunk, since a schedule for many chunks may be
/// long.
fn busiest(question: &Question, algorithm: &Algorithm) -> (u128, usize) {
    let size = question.layout.size();
    let even = 64 * size.next_power_of_two() * size;
    let is_barrier = question.call.collective == Collective::Barrier;
    let call = Call { count: if is_barrier { 0 } else { even }, ..question.call };
    let window_bytes = even * size * 8;
    let (mut bytes, mut peers) = (0, 0);
    for rank in 0..size {
        let mut plan = question.plan(algorithm, rank, window_bytes);
        plan.call = call;
        plan.chunk = even;
        let schedule = (algorithm.schedule)(&plan);
        bytes = bytes.max(bytes_sent(&schedule));
        peers = peers.max(schedule.peers().len());
    }
    let bytes = bytes as u128;
    (if is_barrier { bytes } else { bytes * question.call.count as u128 / even as u128 }, peers)
}
