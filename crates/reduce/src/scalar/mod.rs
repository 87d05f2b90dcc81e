//! Safe loops over single values, which define the results. Every SIMD level must write the same
//! bits.

pub(crate) mod accumulator;

use std::ops::Range;

use bytemuck::{Zeroable, bytes_of, cast_slice, pod_read_unaligned};
use half::{bf16, f16};
use ringfold_types::DataType;

use crate::element::sealed::Stored;
use crate::float8::{F8E4M3, F8E5M2};
use crate::job::{Finish, Form, Job, Line};

pub(crate) use accumulator::Accumulator;

/// Computes the values of a job at the given indices.
pub(crate) type Run = fn(&mut Job<'_>, Range<usize>);

/// The operation on two values. `Avg` is a sum with a division at the end, and `PreMulSum` a sum
/// after a scaling pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    Prod,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
}

/// A `Fold` at compile time.
pub(crate) trait Combine {
    fn combine<A: Accumulator>(left: A, right: A) -> A;
}

/// `left + right`.
pub(crate) struct Sum;

/// `left * right`.
pub(crate) struct Prod;

/// The smaller of the two.
pub(crate) struct Min;

/// The larger of the two.
pub(crate) struct Max;

impl Combine for Sum {
    #[inline]
    fn combine<A: Accumulator>(left: A, right: A) -> A {
        left.sum(right)
    }
}

impl Combine for Prod {
    #[inline]
    fn combine<A: Accumulator>(left: A, right: A) -> A {
        left.prod(right)
    }
}

impl Combine for Min {
    #[inline]
    fn combine<A: Accumulator>(left: A, right: A) -> A {
        left.min(right)
    }
}

impl Combine for Max {
    #[inline]
    fn combine<A: Accumulator>(left: A, right: A) -> A {
        left.max(right)
    }
}

/// Defines folds over the bits of two values.
macro_rules! bitwise {
    ($($(#[$doc:meta])+ $name:ident: |$left:ident, $right:ident| $combined:expr;)+) => {$(
        $(#[$doc])+
        pub(crate) struct $name;

        impl Combine for $name {
            #[inline]
            fn combine<A: Accumulator>(left: A, right: A) -> A {
                left.bitwise(right, |$left, $right| $combined)
            }
        }
    )+};
}

bitwise! {
    /// The bits that both have.
    BitAnd: |left, right| left & right;
    /// The bits that either has.
    BitOr: |left, right| left | right;
    /// The bits that one of both has.
    BitXor: |left, right| left ^ right;
    /// 1 if both are true, and otherwise 0.
    LogicalAnd: |left, right| u64::from(left != 0 && right != 0);
    /// 1 if either is true, and otherwise 0.
    LogicalOr: |left, right| u64::from(left != 0 || right != 0);
    /// 1 if one of both is true, and otherwise 0.
    LogicalXor: |left, right| u64::from((left != 0) != (right != 0));
}

/// The loops for a data type and a fold.
#[derive(Clone, Copy)]
pub(crate) struct Loops {
    pub(crate) run: Run,
    pub(crate) line: OneLine,
    pub(crate) lines: Lines,
}

/// Combines elements with those at the front of a line into final values.
pub(crate) type OneLine = fn(&mut [u8], &Line, Finish);

/// Combines elements at the front of lines into final values.
pub(crate) type Lines = fn(&mut [u8], &[Line], Finish);

/// The loops for a data type and a fold.
pub(crate) fn choose(data_type: DataType, fold: Fold) -> Loops {
    match data_type {
        DataType::I8 => with_type::<i8>(fold),
        DataType::U8 => with_type::<u8>(fold),
        DataType::I32 => with_type::<i32>(fold),
        DataType::U32 => with_type::<u32>(fold),
        DataType::I64 => with_type::<i64>(fold),
        DataType::U64 => with_type::<u64>(fold),
        DataType::F16 => with_type::<f16>(fold),
        DataType::Bf16 => with_type::<bf16>(fold),
        DataType::F32 => with_type::<f32>(fold),
        DataType::F64 => with_type::<f64>(fold),
        DataType::F8E4M3 => with_type::<F8E4M3>(fold),
        DataType::F8E5M2 => with_type::<F8E5M2>(fold),
    }
}

fn with_type<T: Stored>(fold: Fold) -> Loops {
    match fold {
        Fold::Sum => loops::<T, Sum>(),
        Fold::Prod => loops::<T, Prod>(),
        Fold::Min => loops::<T, Min>(),
        Fold::Max => loops::<T, Max>(),
        Fold::BitAnd => loops::<T, BitAnd>(),
        Fold::BitOr => loops::<T, BitOr>(),
        Fold::BitXor => loops::<T, BitXor>(),
        Fold::LogicalAnd => loops::<T, LogicalAnd>(),
        Fold::LogicalOr => loops::<T, LogicalOr>(),
        Fold::LogicalXor => loops::<T, LogicalXor>(),
    }
}

fn loops<T: Stored, C: Combine>() -> Loops {
    Loops { run: run::<T, C>, line: line::<T, C>, lines: lines::<T, C> }
}

/// Values combined before they are written. A block fits the first-level cache, and is long enough
/// that checks of operand forms are rare.
const BLOCK: usize = 64;

fn run<T: Stored, C: Combine>(job: &mut Job<'_>, range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    let mut block = [T::Accumulator::zeroed(); BLOCK];
    for at in range.clone().step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(range.end - at)];
        for (index, operand) in job.operands.iter().enumerate() {
            let source = job.source(operand);
            if index == 0 {
                each::<T>(block, source, at, |value, operand| *value = operand);
            } else {
                each::<T>(block, source, at, |value, operand| {
                    *value = C::combine(*value, operand);
                });
            }
        }
        write::<T>(block, job, at);
    }
}

fn line<T: Stored, C: Combine>(dst: &mut [u8], line: &Line, finish: Finish) {
    // Decided before the loops, which keeps them short.
    match finish {
        Finish::Keep => by_words::<T, C>(dst, line, |value| value),
        _ => by_words::<T, C>(dst, line, |value| finished(value, finish)),
    }
}

#[inline]
fn by_words<T: Stored, C: Combine>(
    dst: &mut [u8],
    line: &Line,
    finished: impl Fn(T::Accumulator) -> T::Accumulator,
) {
    let each = |dst: &mut [u8], others: &[u8]| {
        let width = size_of::<T>();
        for (bytes, other) in dst.chunks_exact_mut(width).zip(others.chunks_exact(width)) {
            let value = |bytes| pod_read_unaligned::<T>(bytes).widen();
            let combined = C::combine(value(bytes), value(other));
            bytes.copy_from_slice(bytes_of(&T::narrow(finished(combined).canonical())));
        }
    };
    // Writes whole words: a later read of the word is slow if several stores have written it.
    let (words, rest) = dst.as_chunks_mut::<WORD>();
    let (others, other) = line.0.split_at(words.len() * WORD);
    for (word, other) in words.iter_mut().zip(others.as_chunks::<WORD>().0) {
        let mut result = *word;
        each(&mut result, other);
        *word = result;
    }
    each(rest, other);
}

const WORD: usize = size_of::<u64>();

fn lines<T: Stored, C: Combine>(dst: &mut [u8], lines: &[Line], finish: Finish) {
    let Some((first, others)) = lines.split_first() else { return };
    for (index, bytes) in dst.chunks_exact_mut(size_of::<T>()).enumerate() {
        let value = |line: &Line| cast_slice::<u8, T>(&line.0)[index].widen();
        let combined = others.iter().fold(value(first), |left, line| C::combine(left, value(line)));
        bytes.copy_from_slice(bytes_of(&T::narrow(finished(combined, finish).canonical())));
    }
}

/// Applies `apply` to each value of the block and its partner in `source`, from index `at` on.
#[inline]
fn each<T: Stored>(
    block: &mut [T::Accumulator],
    (bytes, form): (&[u8], Form),
    at: usize,
    apply: impl Fn(&mut T::Accumulator, T::Accumulator),
) {
    match form {
        Form::Element => {
            for (value, bytes) in block.iter_mut().zip(values::<T>(bytes, at)) {
                apply(value, pod_read_unaligned::<T>(bytes).widen());
            }
        }
        Form::Accumulator => {
            for (value, bytes) in block.iter_mut().zip(values::<T::Accumulator>(bytes, at)) {
                apply(value, pod_read_unaligned(bytes));
            }
        }
    }
}

fn values<V>(bytes: &[u8], at: usize) -> std::slice::ChunksExact<'_, u8> {
    bytes[at * size_of::<V>()..].chunks_exact(size_of::<V>())
}

#[inline]
fn write<T: Stored>(block: &[T::Accumulator], job: &mut Job<'_>, at: usize) {
    match job.form {
        Form::Element => {
            let finish = job.finish;
            let width = size_of::<T>();
            let dst = job.dst[at * width..].chunks_exact_mut(width);
            for (bytes, &value) in dst.zip(block) {
                let value = T::narrow(finished(value, finish).canonical());
                bytes.copy_from_slice(bytes_of(&value));
            }
        }
        Form::Accumulator => {
            let width = size_of::<T::Accumulator>();
            let dst = job.dst[at * width..].chunks_exact_mut(width);
            for (bytes, &value) in dst.zip(block) {
                bytes.copy_from_slice(bytes_of(&value.canonical()));
            }
        }
    }
}

#[inline]
fn finished<A: Accumulator>(value: A, finish: Finish) -> A {
    match finish {
        Finish::Keep => value,
        Finish::Divide { ranks } => value.divide(ranks),
        Finish::Scale { factor } => value.prod(A::from_factor(factor)),
    }
}
