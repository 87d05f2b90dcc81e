//! Recursive doubling: ranks exchange their sums with partners 1, 2, 4, ... away. For messages so
//! short that latency decides.
//!
//! After round d a rank has the sum over the 2^(d+1) ranks around it. Both partners combine the
//! lower ranks' sum with the higher ranks' in this order, so both have the same bits. If n is no
//! power of two, n - 2^floor(log2 n) ranks send their input to a neighbour first and get the result
//! last. Chunks overlap between two ranks only, which send all of them at once.
//!
//! In place, the only round of two ranks overwrites the elements that both have just sent. Pieces
//! that links do not accept ahead of their receiver first land elsewhere. With more rounds the
//! partner has taken the elements before.
//!
//! Steps: floor(log2 n) if n is a power of two. Otherwise, with p the next lower power of two: 1
//! more if n <= 3/2 p, else 2 more. (The first and the last message of the pairs are on one chain
//! only if two pairs are opposite.) Sent by the busiest rank: floor(log2 n) times the buffer, once
//! more if n is no power of two.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.

use alloc::boxed::Box;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::chunks;
use crate::flat::{Flat, Participant, Reducer};
use crate::pattern::hypercube::{Cube, Role, is_lower, neighbour};
use crate::rails;
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "recursive_doubling",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::sums,
    stays_on_rail,
};

pub(super) const FLAT: Flat = Flat {
    algorithm: &ALGORITHM,
    section: |_, chunk| chunk,
    prepare: |steps, participant| Box::new(Doubling::new(steps, participant)),
};

/// Whether messages between neighbours stay, and those of folded ranks.
pub(super) fn stays_on_rail(_: &Call, layout: &Layout) -> bool {
    let order = layout.aligned();
    let pairs = Cube::of(layout.size()).pairs();
    rails::stay(layout, pairs.map(|pair| pair.map(|place| order.at(place.index()))))
}

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let cube = Cube::of(size);
    let (rounds, folds) = (cube.dimensions as usize, usize::from(cube.folded > 0));
    let opposite = usize::from(2 * cube.folded > cube.corners());
    Stated { steps: rounds + folds + opposite, sent: (rounds + folds) * call.count }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, count) = (plan.size(), plan.call.count);
    let member = plan.in_cube();
    let mut steps = Builder::new(plan, ALGORITHM.name, 1).in_order(&member.order);
    // Two ranks send all chunks before they combine the first one.
    let piece = if size == 2 { count.max(1) } else { plan.chunk };
    let participant = Participant {
        rank: member.place,
        size,
        chunk: plan.chunk,
        longest: count.min(piece),
        eager: plan.eager(Form::Element),
        sums: Slice::new(Buffer::Scratch, 0, 0),
        form: plan.sums_form_among_all(),
    };
    let doubling = Doubling::new(&mut steps, &participant);
    for own in chunks(Slice::new(Buffer::Input, 0, count), piece) {
        doubling.piece(&mut steps, own, Slice { buffer: Buffer::Output, ..own });
    }
    steps.build()
}

/// One rank's part in recursive doubling.
struct Doubling {
    cube: Cube,
    role: Role,
    form: Form,
    /// The place of the partner's elements where there is one round, and pieces are so long that
    /// the partner may not have taken this rank's elements yet. Otherwise empty.
    landing: Slice,
    sums: [Slice; 2],
}

impl Doubling {
    fn new(steps: &mut Builder, participant: &Participant) -> Self {
        let &Participant { rank, size, chunk, longest, eager, sums, form } = participant;
        let cube = Cube::of(size);
        let role = cube.role(rank);
        let mut landing = steps.elements(0);
        let mut len = if matches!(role, Role::Corner(..)) { longest } else { 0 };
        if let Role::Corner(corner, None) = role
            && cube.dimensions == 1
        {
            len = 0;
            // Sums are not in the memory of results.
            if sums.len == 0 && longest > eager {
                let is_sum = cube.stands_for_two(neighbour(corner, 0));
                let form = if is_sum { form } else { Form::Element };
                let parts = (longest / chunk).max(1);
                landing = steps.sums(longest.div_ceil(parts), form);
            }
        }
        Self { cube, role, form, landing, sums: [(); 2].map(|()| steps.sums(len, form)) }
    }
}

impl Reducer for Doubling {
    fn piece(&self, steps: &mut Builder, own: Slice, result: Slice) {
        let Some((corner, folded)) = self.role.stands(steps, own, result) else { return };
        let cube = self.cube;
        let sum = |round: u32| match round {
            last if last == cube.dimensions => result,
            round => self.sums[round as usize % 2].take(own.len),
        };
        let own_form = Form::of(own.buffer);
        let mut held = own;
        if let Some(folded) = folded {
            held = sum(0);
            steps.reduce(held, &[Source::Wire(folded, own_form), Source::Local(own)]);
        } else if cube.dimensions == 0 {
            return steps.reduce(result, &[Source::Local(own)]);
        }
        for round in 0..cube.dimensions {
            let other = neighbour(corner, round);
            let (partner, is_own) = (cube.rank(other), round == 0 && !cube.stands_for_two(other));
            let combine = |steps: &mut Builder, dst, held, theirs| {
                let mut sources = [Source::Local(held), theirs];
                if !is_lower(corner, round) {
                    sources.reverse();
                }
                steps.reduce(dst, &sources);
            };
            steps.send(partner, held);
            let next = sum(round + 1);
            if self.landing.len == 0 {
                let form = if is_own { own_form } else { self.form };
                combine(steps, next, held, Source::Wire(partner, form));
            } else {
                let len = self.landing.len;
                for (held, dst) in chunks(held, len).zip(chunks(next, len)) {
                    let landed = self.landing.take(held.len);
                    steps.recv(partner, landed);
                    combine(steps, dst, held, Source::Local(landed));
                }
            }
            held = next;
        }
        if let Some(folded) = folded {
            steps.send(folded, result);
        }
    }
}
