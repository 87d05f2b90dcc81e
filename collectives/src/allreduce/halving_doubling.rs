//! Halving and doubling (Rabenseifner): reduce-scatter by recursive halving, then all-gather by
//! recursive doubling.
//!
//! In round d a rank and its partner 2^d away have the same blocks. Each keeps one half of them,
//! sends the other half, and combines the half that arrives. In the end each rank has finished one
//! block, and the same exchanges in reverse spread the blocks. If n is no power of two, n -
//! 2^floor(log2 n) ranks send their input to a neighbour first and get the result last.
//!
//! Steps: 2 floor(log2 n), 2 more if n is no power of two. Sent by the busiest rank, with p the
//! power of two: 2(p-1)/p of the buffer, and the buffer once more if n is no power of two.
//!
//! Source: Rabenseifner, "Optimization of collective reduction operations", 2004.

use alloc::boxed::Box;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::recursive_doubling;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{blocks_of, chunks};
use crate::flat::{Flat, Participant, Reducer};
use crate::pattern::hypercube::{Cube, Role, is_lower, neighbour};
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "halving_doubling",
    needs: Needs::Links,
    pattern: Pattern::Exchange,
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: recursive_doubling::stays_on_rail,
};

pub(super) const FLAT: Flat = Flat {
    algorithm: &ALGORITHM,
    section,
    prepare: |steps, &Participant { rank, size, longest, sums, form, .. }| {
        // Ranks halve the sums in place.
        let sums = if sums.len > 0 { sums } else { steps.sums(longest, form) };
        Box::new(Halves::new(rank, size, sums))
    },
};

/// Chunks that are halved together. More chunks make the last halves longer and need more scratch.
const CHUNKS_TOGETHER: usize = 64;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let cube = Cube::of(size);
    let halves = 2 * (call.count - call.count / cube.corners());
    let (rounds, folds) = (cube.dimensions as usize, usize::from(cube.folded > 0));
    Stated { steps: 2 * (rounds + folds), sent: halves + folds * call.count }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let count = plan.call.count;
    let member = plan.in_cube();
    let mut steps = Builder::new(plan, ALGORITHM.name, 1).in_order(&member.order);
    let section = section(plan.size(), plan.chunk);
    let sums = steps.sums(count.min(section), plan.sums_form_among_all());
    let halves = Halves::new(member.place, plan.size(), sums);
    for own in chunks(Slice::new(Buffer::Input, 0, count), section) {
        halves.piece(&mut steps, own, Slice { buffer: Buffer::Output, ..own });
    }
    steps.build()
}

/// Elements that are halved together.
fn section(size: usize, chunk: usize) -> usize {
    chunk * Cube::of(size).corners().min(CHUNKS_TOGETHER)
}

/// One rank's part in halving and doubling.
struct Halves {
    cube: Cube,
    role: Role,
    sums: Slice,
}

impl Halves {
    /// A reducer for sections of up to the length of `sums`, which may be this rank's input sums
    /// themselves.
    fn new(rank: Rank, size: usize, sums: Slice) -> Self {
        let cube = Cube::of(size);
        Self { cube, role: cube.role(rank), sums }
    }
}

impl Reducer for Halves {
    /// No step overwrites elements before their receiver must have taken them: the halves that a
    /// rank has sent come back only as results of their receivers.
    fn piece(&self, steps: &mut Builder, own: Slice, result: Slice) {
        let Some((corner, folded)) = self.role.stands(steps, own, result) else { return };
        let (cube, sums) = (self.cube, self.sums.take(own.len));
        let within = |all, kept| blocks_of(all, cube.corners(), kept);
        let own_form = Form::of(own.buffer);
        let mut held = own;
        if let Some(folded) = folded {
            held = sums;
            steps.reduce(held, &[Source::Wire(folded, own_form), Source::Local(own)]);
        } else if cube.dimensions == 0 {
            return steps.reduce(result, &[Source::Local(own)]);
        }
        for round in 0..cube.dimensions {
            let other = neighbour(corner, round);
            let kept = cube.kept(corner, round + 1);
            let is_own = round == 0 && !cube.stands_for_two(other);
            let form = if is_own { own_form } else { Form::of(sums.buffer) };
            steps.send(cube.rank(other), within(held, cube.kept(other, round + 1)));
            let local = Source::Local(within(held, kept.clone()));
            let mut sources = [local, Source::Wire(cube.rank(other), form)];
            if !is_lower(corner, round) {
                sources.reverse();
            }
            held = if round + 1 == cube.dimensions { result } else { sums };
            steps.reduce(within(held, kept), &sources);
        }
        for round in (0..cube.dimensions).rev() {
            let other = neighbour(corner, round);
            steps.send(cube.rank(other), within(result, cube.kept(corner, round + 1)));
            steps.recv(cube.rank(other), within(result, cube.kept(other, round + 1)));
        }
        if let Some(folded) = folded {
            steps.send(folded, result);
        }
    }
}
