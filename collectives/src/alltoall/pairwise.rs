//! Pairwise: in each turn every rank sends a block to one rank and receives one of another. For
//! long messages, because no receiver has two senders at a time.
//!
//! If the number of ranks is a power of two, two ranks exchange their blocks in a turn: those whose
//! numbers differ in the bits of the turn's number. Otherwise a rank sends to the rank that is that
//! number of places after it, and receives from the rank as many places before it.
//!
//! A rank posts its send before it receives, and nothing overwrites what it sends. So it waits only
//! for messages of the same or an earlier turn.
//!
//! Steps: n-1. Sent by each rank: n-1 blocks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use super::linear::Blocks;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllToAll,
    name: "pairwise",
    needs: Needs::Links,
    pattern: Pattern::InTurn,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::among_all,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let others = layout.size() - 1;
    Stated { steps: others, sent: call.count * others }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank) = (plan.size(), plan.rank);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks = Blocks::of(plan);
    for turn in 1..size {
        let [to, from] = if size.is_power_of_two() {
            [Rank::at(rank.index() ^ turn); 2]
        } else {
            [ring::after(rank, turn, size), ring::before(rank, turn, size)]
        };
        steps.send(to, blocks.to(to));
        if turn == 1 {
            // The first message is under way meanwhile.
            steps.copy(blocks.to(rank), blocks.from(rank));
        }
        steps.recv(from, blocks.from(from));
    }
    if size == 1 {
        steps.copy(blocks.to(rank), blocks.from(rank));
    }
    steps.build()
}
