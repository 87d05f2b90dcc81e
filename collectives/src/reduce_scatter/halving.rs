//! Recursive halving: in each step a rank gives away the half of its blocks that is not on its
//! side, and goes on with the other half.
//!
//! The ranks are halved. A rank sends its sums for the other half's blocks to its partner there,
//! and adds the sums that it receives to its own. It goes on until only its own block is left. In a
//! run of odd length, the last rank of the larger half has no partner. It sends to the first rank
//! of the other half and receives nothing. In the next step it always receives something. Any
//! number of ranks takes a logarithmic number of steps.
//!
//! The sums that a rank sends are apart from those that it keeps, so no step waits for sends to
//! leave. A step waits only for messages of the same or an earlier step.
//!
//! Steps: ceil(log2 n), one less from just above a power of two to about 5/4 of it. Sent by each
//! rank: n-1 blocks.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005. Odd runs: Traeff, "An improved algorithm for (non-commutative) reduce-scatter with
//! an application", 2005.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::pattern::halves::{Halving, halvings, longest_chain};
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "halving",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: rails::in_halves,
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: longest_chain(size), sent: call.count * (size - 1) }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let output = Slice::new(Buffer::Output, 0, count);
    if size == 1 {
        steps.reduce(output, &[Source::Local(Slice { buffer: Buffer::Input, ..output })]);
        return steps.build();
    }
    let halvings: Vec<Halving> = halvings(rank, size).collect();
    let kept = &halvings[0].own;
    let form = plan.sums_form_among_all();
    let sums = steps.sums(if kept.len() > 1 { kept.len() * count } else { 0 }, form);
    let blocks = |has_sums, ranks: &Range<usize>| {
        let len = ranks.len() * count;
        match has_sums {
            false => Slice::new(Buffer::Input, ranks.start * count, len),
            true => sums.skip((ranks.start - kept.start) * count).take(len),
        }
    };
    for (level, halving) in halvings.iter().enumerate() {
        let held = has_sums(&halvings[..level]);
        steps.send(halving.taker, blocks(held, &halving.other));
        if halving.givers().next().is_none() {
            continue;
        }
        let sent_form = |giver| {
            let before: Vec<Halving> = self::halvings(giver, size).take(level).collect();
            if has_sums(&before) { form } else { Form::Element }
        };
        let given = halving.givers().map(|giver| Source::Wire(giver, sent_form(giver)));
        let own = Source::Local(blocks(held, &halving.own));
        let sources: Vec<Source> = core::iter::once(own).chain(given).collect();
        let last = level + 1 == halvings.len();
        let sum = if last { output } else { blocks(true, &halving.own) };
        steps.reduce(sum, &sources);
    }
    steps.build()
}

/// Whether a rank holds sums after these halvings. Until it has received some, it sends its bare
/// input.
fn has_sums(halvings: &[Halving]) -> bool {
    halvings.iter().any(|halving| halving.givers().next().is_some())
}
