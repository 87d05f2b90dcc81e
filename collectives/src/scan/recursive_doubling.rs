//! Recursive doubling: in each round a rank sends its sum to the rank at twice the distance of the
//! round before, and puts the sum that it receives before its own. For messages so short that
//! latency decides.
//!
//! After the round of distance d a rank has the sum of the 2d inputs that end with its own, or of
//! all inputs from rank 0 on. Messages go to higher ranks only, and wait for those of earlier
//! rounds, so no ranks wait in a circle. Chunks do not overlap.
//!
//! Steps: floor(log2 n), because rank 0 waits for nobody. Sent by rank 0, the busiest: ceil(log2 n)
//! times the buffer.
//!
//! Source: Hillis and Steele, "Data parallel algorithms", 1986.

use ringfold_topology::{Layout, Order};
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::pattern::dissemination::{distances, rounds};
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Scan,
    name: "recursive_doubling",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail: |_, layout| rails::onward(layout, &Order::default(), distances(layout.size())),
};

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    Stated { steps: size.ilog2() as usize, sent: rounds(size) * call.count }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank.index(), plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let form = plan.sums_form_among_all();
    let sum_len = if rank > 0 && size > 2 { count.min(plan.chunk) } else { 0 };
    let sums = [(); 2].map(|()| steps.sums(sum_len, form));
    for own in chunks(Slice::new(Buffer::Input, 0, count), plan.chunk) {
        let result = Slice { buffer: Buffer::Output, ..own };
        let mut held = own;
        for (round, distance) in distances(size).enumerate() {
            if rank + distance < size {
                steps.send(Rank::at(rank + distance), held);
            }
            let Some(from) = rank.checked_sub(distance) else { continue };
            let is_own = from == 0 || distance == 1;
            let form = if is_own { Form::Element } else { form };
            let sources = [Source::Wire(Rank::at(from), form), Source::Local(held)];
            // The result is not enough where the rank has to send the sum.
            let is_last = 2 * distance > rank && rank + 2 * distance >= size;
            held = if is_last { result } else { sums[round % 2].take(own.len) };
            steps.reduce(held, &sources);
        }
        if held != result {
            steps.reduce(result, &[Source::Local(held)]);
        }
    }
    steps.build()
}
