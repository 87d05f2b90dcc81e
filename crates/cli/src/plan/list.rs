//! Lists the algorithms of a collective with their costs.

use std::fmt::Write;

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Measurements, is_possible};
use ringfold_types::{Call, Collective, Rank};

use super::args::Question;
use super::crossing;
use super::proof::bytes_sent;

/// Returns a table of all algorithms for the collective of `question`.
pub(super) fn algorithms(question: &Question) -> anyhow::Result<String> {
    let Question { layout, .. } = question;
    let chosen = question.chosen(&Measurements::default());
    let mut text = String::new();
    writeln!(text, "{} on {}", question.text(), question.place())?;
    let heads = ["algorithm", "steps", "peers", "away"];
    write!(text, "  {:<20} {:>6} {:>6} {:>6}", heads[0], heads[1], heads[2], heads[3])?;
    writeln!(text, "   the busiest rank sends")?;
    let is_available = |algorithm: &&Algorithm| {
        let in_windows = algorithm.needs_windows() && layout.shares_memory();
        in_windows || is_possible(algorithm, &question.even_call(algorithm), layout)
    };
    for algorithm in question.algorithms().into_iter().filter(is_available) {
        let stated = (algorithm.stated)(&question.even_call(algorithm), layout);
        let Busiest { bytes, peers, away } = busiest(question, algorithm);
        write!(text, "{} ", if algorithm.name == chosen.name { '*' } else { ' ' })?;
        write!(text, "{:<20} {:>6} {peers:>6} {away:>6}", algorithm.name, stated.steps)?;
        write!(text, "   {bytes:>14} B")?;
        let buffer = question.buffer_bytes();
        if buffer > 0 {
            write!(text, " = {:.2} x the buffer", bytes as f64 / buffer as f64)?;
        }
        text.push_str(match (algorithm.needs_windows(), algorithm.needs_staging()) {
            (true, _) => ", in windows only\n",
            (_, true) => ", in shared memory only\n",
            _ => "\n",
        });
    }
    writeln!(text, "* is the algorithm that ringfold chooses; steps: the longest chain of")?;
    writeln!(text, "dependent messages; peers: the most connections of a rank; away: the most")?;
    writeln!(text, "of them to other hosts. --algorithm NAME prints one algorithm.")?;
    if layout.has_fabric() {
        crossing::table(&mut text, question)?;
    }
    Ok(text)
}

/// The maximum of each cost over all ranks.
#[derive(Default)]
struct Busiest {
    /// The most bytes that a rank sends.
    bytes: u128,
    /// The most ranks that a rank exchanges messages with.
    peers: usize,
    /// The most of those ranks on other hosts.
    away: usize,
}

/// Returns the maximum costs over all ranks, exact for counts that divide evenly. They come from
/// schedules with such a count, and are scaled. A hierarchical algorithm keeps the call's count,
/// because the count decides which ranks exchange messages. The message is one chunk: many chunks
/// would make the schedules long.
fn busiest(question: &Question, algorithm: &Algorithm) -> Busiest {
    let size = question.layout.size();
    // Blocks of different lengths keep theirs too.
    let even = match algorithm.is_hierarchical() || question.blocks.is_some() {
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
        let schedule = question.schedule(algorithm, &plan);
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
