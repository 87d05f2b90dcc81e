//! Which algorithms there are, and what each costs.

use std::fmt::Write;

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Constraints, Measurements, is_possible, select};
use ringfold_types::{Call, Collective, Rank};

use super::args::Question;
use super::crossing;
use super::proof::bytes_sent;

/// A table of all algorithms for the collective of `question`.
pub(super) fn algorithms(question: &Question) -> anyhow::Result<String> {
    let Question { call, layout, .. } = question;
    let size = layout.size();
    let chosen = select(call, layout, &Constraints::default(), &Measurements::default());
    let mut text = String::new();
    writeln!(text, "{call} on {}", question.place())?;
    let heads = ["algorithm", "steps", "peers", "away"];
    write!(text, "  {:<20} {:>6} {:>6} {:>6}", heads[0], heads[1], heads[2], heads[3])?;
    writeln!(text, "   the busiest rank sends")?;
    let can_be_had = |algorithm: &&Algorithm| {
        let in_windows = algorithm.needs_windows() && layout.shares_memory();
        in_windows || is_possible(algorithm, call, layout)
    };
    for algorithm in Algorithm::of(call.collective).iter().filter(can_be_had) {
        let stated = (algorithm.stated)(call, layout);
        let Busiest { bytes, peers, away } = busiest(question, algorithm);
        write!(text, "{} ", if algorithm.name == chosen.name { '*' } else { ' ' })?;
        write!(text, "{:<20} {:>6} {peers:>6} {away:>6}", algorithm.name, stated.steps)?;
        write!(text, "   {bytes:>14} B")?;
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
    writeln!(text, "be connected to, away those on other hosts. --algorithm NAME prints one.")?;
    if layout.has_fabric() {
        crossing::table(&mut text, question)?;
    }
    Ok(text)
}

/// The most that any rank has.
#[derive(Default)]
struct Busiest {
    /// Bytes that it sends.
    bytes: u128,
    /// Ranks that it sends to or takes from,
    peers: usize,
    /// and those of them that are on other hosts.
    away: usize,
}

/// What the busiest ranks have: exact where counts divide evenly: measured where they do, unless
/// the count decides who talks to whom, and all is one chunk, since many may be a long schedule.
fn busiest(question: &Question, algorithm: &Algorithm) -> Busiest {
    let size = question.layout.size();
    let even = match algorithm.is_hierarchical() {
        true => question.call.count.max(1),
        false => 64 * size.next_power_of_two() * size,
    };
    let is_barrier = question.call.collective == Collective::Barrier;
    let call = Call { count: if is_barrier { 0 } else { even }, ..question.call };
    let window_bytes = even * size * 8;
    let mut busiest = Busiest::default();
    for rank in 0..size {
        let mut plan = question.plan(rank, window_bytes);
        plan.call = call;
        plan.chunk = even;
        let schedule = (algorithm.schedule)(&plan);
        let peers = schedule.peers();
        let is_away = |peer: &&Rank| !question.layout.same_host(schedule.rank(), **peer);
        busiest.bytes = busiest.bytes.max(bytes_sent(&schedule) as u128);
        busiest.away = busiest.away.max(peers.iter().filter(is_away).count());
        busiest.peers = busiest.peers.max(peers.len());
    }
    if !is_barrier {
        busiest.bytes = busiest.bytes * question.call.count as u128 / even as u128;
    }
    busiest
}
