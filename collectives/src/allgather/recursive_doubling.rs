//! Recursive doubling: neighbours swap what they have, then neighbouring pairs do, then fours.
//!
//! The ranks are halved until each is alone, and joined again from the smallest halves up: the
//! halves of a run hold one half of its blocks each, and partners swap them. In a run of odd length
//! the rank without a partner gets the other half's blocks from the first there, which sends them
//! twice; so any number of ranks takes the logarithm of steps.
//!
//! In each step a rank waits only for what others send in the same step or before.
//!
//! Steps: ceil(log2 n), one less from just above a power of two to about 5/4 of it. Sent by each
//! rank: n-1 blocks if n is a power of two; otherwise the busiest sends more, up to half as much
//! again.
//!
//! Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//! 2005; odd runs as in Traeff, "An improved algorithm for (non-commutative) reduce-scatter with an
//! application", 2005.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::crossing::Messages;
use crate::pattern::halves::{halvings, longest_chain};
use crate::schedule::{Builder, Form, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "recursive_doubling",
    needs: Needs::Links,
    way: Way::Exchange,
    schedule,
    stated,
    moved: Moved::results,
    messages,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let sent = |rank| halvings(rank, size).map(|h| h.own.len() * h.givers().count()).sum();
    let busiest: usize = (0..size).map(Rank::at).map(sent).max().unwrap_or(0);
    Stated { steps: longest_chain(size), sent: busiest * call.count }
}

fn messages(messages: &mut Messages<'_>) {
    let (size, count) = (messages.size(), messages.call.count);
    for rank in messages.ranks() {
        for halving in halvings(rank, size) {
            for giver in halving.givers() {
                messages.send(rank, giver, Form::Element, halving.own.len() * count);
            }
        }
    }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (rank, count) = (plan.rank.index(), plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks =
        |ranks: &Range<usize>| Slice::new(Buffer::Output, ranks.start * count, ranks.len() * count);
    steps.copy(Slice::new(Buffer::Input, 0, count), blocks(&(rank..rank + 1)));
    let halvings: Vec<_> = halvings(plan.rank, plan.size()).collect();
    for halving in halvings.iter().rev() {
        // Who would hand over when halving is handed to when joining.
        for giver in halving.givers() {
            steps.send(giver, blocks(&halving.own));
        }
        steps.recv(halving.taker, blocks(&halving.other));
    }
    steps.build()
}
