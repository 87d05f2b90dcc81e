//! Symbolic memory: runs of elements and the inputs that went into them.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

use ringfold_types::{Rank, Slice};

use super::flaw::Flaw;
use super::fold::Fold;

/// A set of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranks(Rc<[u64]>);

impl Ranks {
    pub(super) fn only(rank: usize, size: usize) -> Self {
        let mut words = alloc::vec![0; size.div_ceil(64)];
        words[rank / 64] = 1 << (rank % 64);
        Self(words.into())
    }

    pub(super) fn none(size: usize) -> Self {
        Self::range(0..0, size)
    }

    pub(super) fn range(ranks: Range<usize>, size: usize) -> Self {
        let mut words = alloc::vec![0; size.div_ceil(64)];
        ranks.for_each(|rank| words[rank / 64] |= 1 << (rank % 64));
        Self(words.into())
    }

    /// Whether all these ranks are below all `others`.
    pub(super) fn are_below(&self, others: &Self) -> bool {
        let word = |words: &[u64], at: Option<usize>| at.map(|at| (at, words[at]));
        let last = word(&self.0, self.0.iter().rposition(|word| *word != 0));
        let first = word(&others.0, others.0.iter().position(|word| *word != 0));
        match (last, first) {
            (Some((at, last)), Some((other, first))) => {
                let last = 64 * at + last.ilog2() as usize;
                last < 64 * other + first.trailing_zeros() as usize
            }
            _ => true,
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&*other.0).map(|(a, b)| a | b).collect())
    }

    pub(super) fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().zip(&*other.0).all(|(a, b)| a & b == 0)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// The symbolic content of a run of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// The element at index i consists of inputs at index i + shift.
    pub(super) shift: isize,
    /// The ranks whose inputs it contains.
    pub(super) from: Ranks,
    /// The order in which they were combined.
    pub(super) fold: Fold,
    /// Whether it went through the step that divides averages and rounds accumulators.
    pub(super) finished: bool,
}

/// A number of elements, and the value that each of them holds.
pub(super) type Run = (usize, Value);

/// A buffer. Each of its elements is unwritten or has a value.
#[derive(Debug)]
pub(super) struct Memory<V = Value> {
    /// Start, length and value of each run, in order and without overlap.
    runs: Vec<(usize, usize, V)>,
}

impl<V> Default for Memory<V> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<V: Clone + PartialEq> Memory<V> {
    /// A buffer that holds these values from its beginning on.
    pub(super) fn of(values: Vec<(usize, V)>) -> Self {
        let mut memory = Self::default();
        memory.write(0, values);
        memory
    }

    /// Whether no step has written any element of `start..start + len`.
    pub(super) fn is_unwritten(&self, start: usize, len: usize) -> bool {
        let at = self.runs.partition_point(|run| run.0 + run.1 <= start);
        self.runs.get(at).is_none_or(|run| run.0 >= start + len)
    }

    /// The values of `start..start + len`; `None` if any of them is unwritten.
    pub(super) fn read(&self, start: usize, len: usize) -> Option<Vec<(usize, V)>> {
        let mut found = Vec::new();
        let mut position = start;
        let at = self.runs.partition_point(|run| run.0 + run.1 <= start);
        for (run_start, run_len, value) in &self.runs[at..] {
            if position == start + len || *run_start > position {
                break;
            }
            let end = (run_start + run_len).min(start + len);
            found.push((end - position, value.clone()));
            position = end;
        }
        (position == start + len).then_some(found)
    }

    /// The value at `position`, and the number of elements from there on that equal it (less than
    /// `usize::MAX / 2`).
    pub(super) fn run_at(&self, position: usize) -> (usize, Option<&V>) {
        let at = self.runs.partition_point(|run| run.0 + run.1 <= position);
        match self.runs.get(at) {
            Some((start, len, value)) if *start <= position => {
                (start + len - position, Some(value))
            }
            Some((start, ..)) => (start - position, None),
            None => (usize::MAX / 4, None),
        }
    }

    /// Overwrites the elements from `start` on.
    pub(super) fn write(&mut self, start: usize, values: Vec<(usize, V)>) {
        let len: usize = values.iter().map(|run| run.0).sum();
        if len == 0 {
            return;
        }
        let end = start + len;
        let first = self.runs.partition_point(|run| run.0 + run.1 <= start);
        let last = self.runs.partition_point(|run| run.0 < end);
        let mut between = Vec::new();
        if let Some((s, _, value)) = self.runs[first..last].first().filter(|run| run.0 < start) {
            between.push((*s, start - s, value.clone()));
        }
        let mut position = start;
        for (len, value) in values {
            match between.last_mut() {
                Some((s, l, v)) if *s + *l == position && *v == value => *l += len,
                _ => between.push((position, len, value)),
            }
            position += len;
        }
        if let Some((s, l, value)) = self.runs[first..last].last().filter(|run| run.0 + run.1 > end)
        {
            between.push((end, s + l - end, value.clone()));
        }
        self.runs.splice(first..last, between);
    }
}

/// Cuts the first `len` elements off a queue of runs on the wire. The shift of a run there is the
/// index of its first input.
pub(super) fn cut(runs: &mut alloc::collections::VecDeque<Run>, len: usize) -> Vec<Run> {
    let mut taken = Vec::new();
    let mut missing = len;
    while missing > 0 {
        let Some(front) = runs.front_mut() else { break };
        let part = front.0.min(missing);
        taken.push((part, front.1.clone()));
        front.0 -= part;
        front.1.shift += part.cast_signed();
        missing -= part;
        if front.0 == 0 {
            runs.pop_front();
        }
    }
    taken
}

/// The same values, with shifts for another place in a buffer.
pub(super) fn shifted(mut values: Vec<Run>, from: Slice, to: Slice) -> Vec<Run> {
    for (_, value) in &mut values {
        value.shift += from.offset.cast_signed() - to.offset.cast_signed();
    }
    values
}

/// Combines two sets of values, element by element. With `in_order`, the inputs in the first are
/// those of lower ranks.
pub(super) fn combine(
    a: &[Run],
    b: &[Run],
    in_order: bool,
    (rank, slice): (Rank, Slice),
) -> Result<Vec<Run>, Flaw> {
    let (mut a, mut b) = (a.iter().cloned(), b.iter().cloned());
    let (mut left, mut right) = (a.next(), b.next());
    let mut result = Vec::new();
    while let (Some((la, va)), Some((lb, vb))) = (&mut left, &mut right) {
        if va.shift != vb.shift || va.finished || vb.finished {
            return Err(Flaw::Mixed { rank, slice });
        }
        if !va.from.is_disjoint(&vb.from) {
            return Err(Flaw::Twice { rank, slice });
        }
        if in_order && !va.from.are_below(&vb.from) {
            return Err(Flaw::Order { rank, slice });
        }
        let len = (*la).min(*lb);
        let from = va.from.union(&vb.from);
        let fold = va.fold.with(vb.fold);
        result.push((len, Value { shift: va.shift, from, fold, finished: false }));
        *la -= len;
        *lb -= len;
        if *la == 0 {
            left = a.next();
        }
        if *lb == 0 {
            right = b.next();
        }
    }
    Ok(result)
}
