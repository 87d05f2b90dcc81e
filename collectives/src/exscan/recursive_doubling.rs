//! Doubling after two rounds of distance 1 and 2: in each round a rank sends a sum to a higher
//! rank, and puts the sum that it receives before its own. For messages so short that latency
//! decides.
//!
//! 1. Each rank sends its input to the next rank, which holds it as its first sum.
//! 2. Each rank adds its input to its sum, and sends the result over distance 2. A rank then
//!    holds the sum of the 3 inputs before its own.
//! 3. Rounds of distance 3, 6, 12 and so on double the number of inputs. Rank 0 holds none, so it
//!    sends nothing.
//!
//! Only the second round combines twice. Messages go to higher ranks only, and wait for those of
//! earlier rounds, so no ranks wait in a circle. Chunks do not overlap.
//!
//! Steps: 1 for 2 or 3 ranks, else floor(log2 ((n-1)/3)) + 2. Sent by rank 1, or by rank 0 of 2 or
//! 3 ranks: one buffer in each round that has a receiver.
//!
//! Source: Traeff, "On optimal, non-commutative exclusive prefix sums", arXiv 2507.04785, 2025.

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Exscan,
    name: "recursive_doubling",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail,
};

/// The distances, round by round: 1, 2, 3, 6, 12 and so on.
fn distances(size: usize) -> impl Iterator<Item = usize> {
    let doubled = core::iter::successors(Some(3_usize), |distance| distance.checked_mul(2));
    [1, 2].into_iter().chain(doubled).take_while(move |distance| *distance < size)
}

/// Whether `rank` sends over `distance`. Beyond 2 rank 0 has nothing to send.
const fn sends(rank: usize, distance: usize, size: usize) -> bool {
    rank + distance < size && (rank > 0 || distance <= 2)
}

/// The form of a message, if those of sums have `sums` form.
const fn form_of(rank: usize, distance: usize, sums: Form) -> Form {
    if rank == 0 || distance == 1 { Form::Element } else { sums }
}

fn stays_on_rail(_: &Call, layout: &Layout) -> bool {
    let size = layout.size();
    let over = |distance| {
        let senders = (0..size).filter(move |rank| sends(*rank, distance, size));
        senders.map(move |rank| [rank, rank + distance].map(Rank::at))
    };
    rails::stay(layout, distances(size).flat_map(over))
}

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let steps = match size - 1 {
        0 => 0,
        1 | 2 => 1,
        others => (others / 3).ilog2() as usize + 2,
    };
    let sent = |rank| distances(size).filter(|distance| sends(rank, *distance, size)).count();
    Stated { steps, sent: sent(0).max(sent(1)) * call.count }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank.index(), plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let form = plan.sums_form_among_all();
    let sum_len = if rank > 0 { count.min(plan.chunk) } else { 0 };
    let sums = [(); 3].map(|()| steps.sums(sum_len, form));
    for own in chunks(Slice::new(Buffer::Input, 0, count), plan.chunk) {
        let result = Slice { buffer: Buffer::Output, ..own };
        let [with_own, even, odd] = sums.map(|sum| sum.take(own.len));
        let mut held: Option<Slice> = None;
        for (round, distance) in distances(size).enumerate() {
            if sends(rank, distance, size) {
                let to = Rank::at(rank + distance);
                match held {
                    Some(before) if distance == 2 => {
                        let sources = [before, own].map(Source::Local);
                        steps.reduce(with_own, &sources);
                        steps.send(to, with_own);
                    }
                    Some(sum) if distance > 2 => steps.send(to, sum),
                    _ => steps.send(to, own),
                }
            }
            let Some(from) = rank.checked_sub(distance) else { continue };
            if !sends(from, distance, size) {
                continue;
            }
            let arriving = Source::Wire(Rank::at(from), form_of(from, distance, form));
            let later = distances(size).filter(|later| *later > distance);
            let is_last = later.into_iter().all(|later| {
                let receives = rank >= later && sends(rank - later, later, size);
                !receives && !sends(rank, later, size)
            });
            let sum = match round {
                _ if is_last => result,
                round if round % 2 == 0 => even,
                _ => odd,
            };
            match held {
                None => steps.reduce(sum, &[arriving]),
                Some(held) => steps.reduce(sum, &[arriving, Source::Local(held)]),
            }
            held = Some(sum);
        }
        // The last step, because in place the input is needed until then.
        if let Some(sum) = held.filter(|held| *held != result) {
            steps.reduce(result, &[Source::Local(sum)]);
        }
    }
    steps.build()
}
