//! Lists the algorithms of a collective with their costs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;

use rayon::prelude::*;
use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Measurements, is_possible};
use ringfold_types::{Call, Collective, Rank};

use super::args::Question;
use super::crossing;
use super::proof::bytes_sent;

/// The most ranks that are all examined.
const RANKS_EXAMINED: usize = 1024;

/// In a staging buffer, blocks are whole lines.
const LINE_BYTES: usize = 64;

/// Examined ranks of a larger job, at even distances; others are examined for their place.
const RANKS_SAMPLED: usize = 64;

/// Prints a table of all algorithms for the collective of `question`, line by line.
pub(super) fn algorithms(question: &Question, out: &mut dyn Write) -> anyhow::Result<()> {
    let Question { layout, .. } = question;
    writeln!(out, "{} on {}", question.text(), question.place())?;
    let examined = examined(layout.size(), question.call.root.index());
    if examined.len() < layout.size() {
        writeln!(out, "  from the schedules of {} of the ranks, a sample", examined.len())?;
    }
    let heads = ["algorithm", "steps", "peers", "away"];
    write!(out, "  {:<20} {:>6} {:>6} {:>6}", heads[0], heads[1], heads[2], heads[3])?;
    writeln!(out, "   the busiest rank sends")?;
    let chosen = question.chosen(&Measurements::default());
    let is_available = |algorithm: &&Algorithm| {
        let in_windows = algorithm.needs_windows() && layout.shares_memory();
        in_windows || is_possible(algorithm, &question.even_call(algorithm), layout)
    };
    for algorithm in question.algorithms().into_iter().filter(is_available) {
        let stated = (algorithm.stated)(&question.even_call(algorithm), layout);
        let Busiest { bytes, peers, away } = busiest(question, algorithm, &examined);
        let mut text = String::new();
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
        out.write_all(text.as_bytes())?;
    }
    writeln!(out, "* is the algorithm that ringfold chooses; steps: the longest chain of")?;
    writeln!(out, "dependent messages; peers: the most connections of a rank; away: the most")?;
    writeln!(out, "of them to other hosts. --algorithm NAME prints one algorithm.")?;
    if layout.has_fabric() && examined.len() == layout.size() {
        crossing::table(out, question)?;
    } else if layout.has_fabric() {
        writeln!(out, "The bytes across each level are counted for up to {RANKS_EXAMINED} ranks.")?;
    }
    Ok(())
}

/// The ranks whose schedules tell the costs of all: each of a job of usual size. Of a larger one
/// those at both ends, those around the root and around powers of two, and others all over it.
fn examined(size: usize, root: usize) -> Vec<usize> {
    if size <= RANKS_EXAMINED {
        return (0..size).collect();
    }
    let powers = (0..usize::BITS).map(|exponent| 1 << exponent).take_while(|power| *power < size);
    let around = powers.chain([root, size]).flat_map(|at: usize| at.saturating_sub(2)..at + 2);
    // The remainders by small numbers, such as the ranks of a host, differ.
    let spread = (0..RANKS_SAMPLED).map(|at| at * size / RANKS_SAMPLED + at);
    let all: BTreeSet<usize> = (0..8).chain(around).chain(spread).collect();
    all.into_iter().filter(|rank| *rank < size).collect()
}

/// The maximum of each cost over some ranks.
#[derive(Default)]
struct Busiest {
    /// The most bytes that a rank sends.
    bytes: u128,
    /// The most ranks that a rank exchanges messages with.
    peers: usize,
    /// The most of those ranks on other hosts.
    away: usize,
}

impl Busiest {
    fn most(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            peers: self.peers.max(other.peers),
            away: self.away.max(other.away),
        }
    }
}

/// Returns the maximum costs over the `examined` ranks, exact for counts that divide evenly. They
/// come from schedules with such a count, and are scaled. A hierarchical algorithm keeps the call's
/// count, because the count decides which ranks exchange messages. The message is one chunk: many
/// chunks would make the schedules long. So would many pieces in staging buffers, which divide
/// calls by the ranks only.
fn busiest(question: &Question, algorithm: &Algorithm, examined: &[usize]) -> Busiest {
    let size = question.layout.size();
    // Blocks of different lengths keep theirs too.
    let even = match algorithm.is_hierarchical() || question.blocks.is_some() {
        true => question.call.count.max(1),
        false if algorithm.needs_staging() => LINE_BYTES / question.call.data_type.bytes() * size,
        false => 64 * size.next_power_of_two() * size,
    };
    let is_barrier = question.call.collective == Collective::Barrier;
    let call = Call { count: if is_barrier { 0 } else { even }, ..question.call };
    let window_bytes = even * size * 8;
    let of_rank = |rank: &usize| {
        let mut plan = question.plan(*rank, window_bytes);
        plan.call = call;
        plan.chunk = even;
        let schedule = question.schedule(algorithm, &plan);
        let peers = schedule.peers();
        let is_away = |peer: &&Rank| !question.layout.same_host(schedule.rank(), **peer);
        Busiest {
            bytes: bytes_sent(&schedule) as u128,
            away: peers.iter().filter(is_away).count(),
            peers: peers.len(),
        }
    };
    // All ranks do alike in staging buffers, and their schedules are the longest.
    let step = if examined.len() < size && algorithm.needs_staging() { 16 } else { 1 };
    let mut busiest =
        examined.par_iter().step_by(step).map(of_rank).reduce(Busiest::default, Busiest::most);
    if !is_barrier {
        busiest.bytes = busiest.bytes * question.call.count as u128 / even as u128;
    }
    busiest
}
