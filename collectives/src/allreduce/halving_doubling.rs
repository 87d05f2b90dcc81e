//! Halving and doubling (Rabenseifner): reduce-scatter by recursive halving, then allgather by
//! recursive doubling.
//!
//! In round d a rank and its partner 2^d away each take half of what both have, send the other half
//! and combine what arrives; in the end everyone has finished one block, and the same exchanges in
//! reverse spread the blocks. Where n is no power of two, n - 2^floor(log2 n) ranks hand their
//! input to a neighbour first and get the result last.
//!
//! Steps: 2 floor(log2 n), 2 more if n is no power of two. Sent by the busiest rank, with p the
//! power of two: 2(p-1)/p of the buffer, and once the buffer more if n is no power of two.
//!
//! Rabenseifner, "Optimization of collective reduction operations", 2004.

use core::ops::Range;

use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::{blocks, chunks};
use crate::pattern::hypercube::{Cube, Role, is_lower, neighbour};
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllReduce, name: "halving_doubling", schedule, stated };

/// Chunks that are halved together: more of them make the last halves long, but need more scratch.
const CHUNKS_TOGETHER: usize = 64;

fn stated(call: &Call, size: usize) -> Stated {
    let cube = Cube::of(size);
    let halves = 2 * (call.count - call.count / cube.corners());
    let (rounds, folds) = (cube.dimensions as usize, usize::from(cube.folded > 0));
    Stated { steps: 2 * (rounds + folds), sent: halves + folds * call.count }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (count, cube) = (plan.call.count, Cube::of(plan.size()));
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let section = plan.chunk * cube.corners().min(CHUNKS_TOGETHER);
    let sections = chunks(Slice::new(Buffer::Input, 0, count), section);
    match cube.role(plan.rank) {
        Role::Folded(into) => {
            for own in sections {
                steps.send(into, own);
                steps.recv(into, Slice { buffer: Buffer::Output, ..own });
            }
        }
        Role::Corner(corner, folded) => {
            let sums = steps.scratch(count.min(section));
            for own in sections {
                one_section(&mut steps, cube, corner, folded, [own, sums.take(own.len)]);
            }
        }
    }
    steps.build()
}

/// Nothing is overwritten before its receiver must have taken it: the halves that were sent come
/// back only as results of their receivers.
fn one_section(
    steps: &mut Builder,
    cube: Cube,
    corner: usize,
    folded: Option<Rank>,
    [own, sums]: [Slice; 2],
) {
    let result = Slice { buffer: Buffer::Output, ..own };
    let within = |all: Slice, Range { start, end }| {
        let part = blocks(all.buffer, all.len, cube.corners(), start, end);
        all.skip(part.offset).take(part.len)
    };
    let mut held = own;
    if let Some(folded) = folded {
        held = sums;
        steps.reduce(held, &[Source::Wire(folded, Form::Element), Source::Local(own)]);
    } else if cube.dimensions == 0 {
        return steps.reduce(result, &[Source::Local(own)]);
    }
    for round in 0..cube.dimensions {
        let other = neighbour(corner, round);
        let kept = cube.kept(corner, round + 1);
        let is_input = round == 0 && !cube.stands_for_two(other);
        let form = if is_input { Form::Element } else { Form::Accumulator };
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
