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
    writeln!(text, "  {:<20} {:>6}   the busiest rank sends", "algorithm", "steps")?;
    for algorithm in Algorithm::of(call.collective) {
        let stated = (algorithm.stated)(call, size);
        let bytes = busiest_bytes(question, algorithm);
        write!(text, "{} ", if algorithm.name == chosen.name { '*' } else { ' ' })?;
        write!(text, "{:<20} {:>6}   {bytes:>14} B", algorithm.name, stated.steps)?;
        let buffer = call.input_len(size).max(call.output_len(size)) * call.data_type.bytes();
        if buffer > 0 {
            write!(text, " = {:.2} x the buffer", bytes as f64 / buffer as f64)?;
        }
        text.push_str(if algorithm.needs_windows() { ", in windows only\n" } else { "\n" });
    }
    writeln!(text, "* is what ringfold would choose there; steps are a chain of messages that")?;
    writeln!(text, "each wait for the one before. --algorithm NAME prints one.")?;
    Ok(text)
}

/// Bytes that the busiest rank sends, exact where counts divide evenly: measured where they do and
/// all is one chunk, since a schedule for many chunks may be long.
fn busiest_bytes(question: &Question, algorithm: &Algorithm) -> u128 {
    let size = question.layout.size();
    let even = 64 * size.next_power_of_two() * size;
    let is_barrier = question.call.collective == Collective::Barrier;
    let call = Call { count: if is_barrier { 0 } else { even }, ..question.call };
    let window_bytes = even * size * 8;
    let busiest = (0..size).map(|rank| {
        let mut plan = question.plan(rank, window_bytes);
        plan.call = call;
        plan.chunk = even;
        bytes_sent(&(algorithm.schedule)(&plan))
    });
    let busiest = busiest.max().unwrap_or(0) as u128;
    if is_barrier { busiest } else { busiest * question.call.count as u128 / even as u128 }
}
