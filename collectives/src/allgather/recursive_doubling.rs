//! Recursive doubling: neighbours swap their blocks, then neighbouring pairs do, then groups of
//! four.
//!
//! The ranks are halved until each is alone, and joined again from the smallest halves up. The two
//! halves of a run hold one half of its blocks each, and partners swap them. In a run of odd length
//! one rank has no partner. It gets the other half's blocks from the first rank there, which sends
//! them twice. So any number of ranks takes a logarithmic number of steps.
//!
//! In each step a rank waits only for messages of the same or an earlier step.
//!
//! Steps: ceil(log2 n), one less from just above a power of two to about 5/4 of it. Sent by each
//! rank: n-1 blocks if n is a power of two. Otherwise the busiest rank sends up to half as much
//! again.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005. Odd runs: Traeff, "An improved algorithm for (non-commutative) reduce-scatter with
//! an application", 2005.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::halves::{halvings, longest_chain};
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "recursive_doubling",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::results,
    stays_on_rail: rails::in_halves,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let sent = |rank| halvings(rank, size).map(|h| h.own.len() * h.givers().count()).sum();
    let busiest: usize = (0..size).map(Rank::at).map(sent).max().unwrap_or(0);
    Stated { steps: longest_chain(size), sent: busiest * call.count }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (rank, count) = (plan.rank.index(), plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks =
        |ranks: &Range<usize>| Slice::new(Buffer::Output, ranks.start * count, ranks.len() * count);
    steps.copy(Slice::new(Buffer::Input, 0, count), blocks(&(rank..rank + 1)));
    let halvings: Vec<_> = halvings(plan.rank, plan.size()).collect();
    for halving in halvings.iter().rev() {
        // `Halving` describes a reduce-scatter; here givers and takers change roles.
        for giver in halving.givers() {
            steps.send(giver, blocks(&halving.own));
        }
        steps.recv(halving.taker, blocks(&halving.other));
    }
    steps.build()
}
