//! The entry point: a reduction resolved for this CPU.

use std::fmt;
use std::ops::Range;

use ringfold_types::{DataType, ReduceOp, limits};

use crate::job::{Finish, Form, Job, Line, Operand};
use crate::level::Level;
use crate::scalar::{self, Fold};
use crate::simd;

/// One reduction of one data type: resolved once, and then cheap to run and to copy.
#[derive(Clone, Copy)]
pub struct Kernel {
    data_type: DataType,
    finish: Finish,
    level: Level,
    /// The loop for all values but the last few; absent in the scalar kernel.
    vectors: Option<simd::Loop>,
    scalar: scalar::Loops,
}

impl Kernel {
    /// Returns the fastest kernel of this CPU. Averages divide by `ranks`.
    ///
    /// `PreMulSum` acts as `Sum` here. Its scaling is a separate pass ([`scale`](crate::scale)),
    /// because the factor belongs to a rank's own input.
    ///
    /// # Panics
    ///
    /// If `ranks` is 0 or more than `limits::RANKS_MAX`.
    #[must_use]
    pub fn new(data_type: DataType, op: ReduceOp, ranks: usize) -> Self {
        Self::of_op(Level::best(), data_type, op, ranks)
    }

    /// Returns the scalar kernel, which defines the results.
    ///
    /// # Panics
    ///
    /// As [`Kernel::new`].
    #[must_use]
    pub fn scalar(data_type: DataType, op: ReduceOp, ranks: usize) -> Self {
        Self::of_op(Level::Scalar, data_type, op, ranks)
    }

    /// Returns the kernel of a level, or `None` if the CPU lacks it. For tests and benchmarks.
    ///
    /// # Panics
    ///
    /// As [`Kernel::new`].
    #[must_use]
    pub fn with(level: Level, data_type: DataType, op: ReduceOp, ranks: usize) -> Option<Self> {
        level.is_available().then(|| Self::of_op(level, data_type, op, ranks))
    }

    fn of_op(level: Level, data_type: DataType, op: ReduceOp, ranks: usize) -> Self {
        let ranks = divisor(ranks);
        let (fold, finish) = match op {
            ReduceOp::Sum | ReduceOp::PreMulSum(_) => (Fold::Sum, Finish::Keep),
            ReduceOp::Prod => (Fold::Prod, Finish::Keep),
            ReduceOp::Min => (Fold::Min, Finish::Keep),
            ReduceOp::Max => (Fold::Max, Finish::Keep),
            ReduceOp::Avg => (Fold::Sum, Finish::Divide { ranks }),
            ReduceOp::BitAnd => (Fold::BitAnd, Finish::Keep),
            ReduceOp::BitOr => (Fold::BitOr, Finish::Keep),
            ReduceOp::BitXor => (Fold::BitXor, Finish::Keep),
            ReduceOp::LogicalAnd => (Fold::LogicalAnd, Finish::Keep),
            ReduceOp::LogicalOr => (Fold::LogicalOr, Finish::Keep),
            ReduceOp::LogicalXor => (Fold::LogicalXor, Finish::Keep),
        };
        Self::resolve(level, data_type, fold, finish)
    }

    /// Returns the kernel that multiplies its only operand by `factor`.
    pub(crate) fn scaling(level: Level, data_type: DataType, factor: f64) -> Self {
        Self::resolve(level, data_type, Fold::Sum, Finish::Scale { factor })
    }

    fn resolve(level: Level, data_type: DataType, fold: Fold, finish: Finish) -> Self {
        Self {
            data_type,
            finish,
            level,
            vectors: simd::Loop::choose(level, data_type, fold),
            scalar: scalar::choose(data_type, fold),
        }
    }

    /// The kernel for partial results in the elements' type: it rounds them, but divides no
    /// averages.
    #[must_use]
    pub const fn partial(&self) -> Self {
        Self { finish: Finish::Keep, ..*self }
    }

    /// The instructions that the kernel uses.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The data type of the elements that the kernel reduces.
    #[must_use]
    pub const fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Writes the combination of the operands to `dst`, from left to right.
    ///
    /// Values are combined in the accumulator type. In `Form::Element` the result is final:
    /// averages are divided, and short floats are rounded once. In `Form::Accumulator` it is
    /// neither. A single operand is converted in the same way.
    ///
    /// # Panics
    ///
    /// If there are no operands or more than `limits::SOURCES_MAX`, or if the lengths of an operand
    /// and of `dst` differ.
    pub fn combine(&self, dst: &mut [u8], dst_form: Form, operands: &[Operand<'_>]) {
        let width = dst_form.bytes(self.data_type);
        // All widths are powers of two; a division would take as long as a small job.
        let count = dst.len() >> width.trailing_zeros();
        assert!(
            dst.len() == count * width,
            "a destination of {} bytes is no whole number of {} values",
            dst.len(),
            self.data_type,
        );
        assert!(
            (1..=limits::SOURCES_MAX).contains(&operands.len()),
            "{} operands; a kernel combines 1 to {}",
            operands.len(),
            limits::SOURCES_MAX,
        );
        for operand in operands {
            assert!(!matches!(operand, Operand::Other(_)), "there are no other destinations");
            let Operand::Bytes { bytes, form } = operand else { continue };
            assert!(
                bytes.len() == count * form.bytes(self.data_type),
                "an operand of {} bytes, as {form:?}, for {count} values of {}",
                bytes.len(),
                self.data_type,
            );
        }
        let mut job = Job {
            dst,
            form: dst_form,
            count,
            operands,
            finish: self.finish,
            others: &[],
            non_temporal: false,
        };
        match self.vectors {
            Some(vectors) => {
                let head = unaligned_head(job.dst, width);
                (self.scalar.run)(&mut job, 0..head);
                let done = vectors.run(&mut job, head);
                (self.scalar.run)(&mut job, done..count);
            }
            None => (self.scalar.run)(&mut job, 0..count),
        }
    }

    /// As `combine` for elements, and also writes the results to `others`. One pass does both, so
    /// loads and stores wait for memory together. With `non_temporal`, the results bypass the
    /// caches if the CPU has such stores. That suits destinations that are in no cache now, and so
    /// long that the caches would evict them, and much else, before anyone reads them.
    ///
    /// # Panics
    ///
    /// As `combine`. Also if the destinations differ in length, or if there are more than
    /// `limits::SOURCES_MAX` others.
    pub fn combine_to_all(
        &self,
        dst: &mut [u8],
        others: &mut [&mut [u8]],
        operands: &[Operand<'_>],
        non_temporal: bool,
    ) {
        let width = self.data_type.bytes();
        let count = dst.len() >> width.trailing_zeros();
        assert!(
            dst.len() == count * width,
            "a destination of {} bytes is no whole number of elements",
            dst.len()
        );
        assert!(
            (1..=limits::SOURCES_MAX).contains(&operands.len()),
            "{} operands: not 1 to {}",
            operands.len(),
            limits::SOURCES_MAX
        );
        assert!(others.len() <= limits::SOURCES_MAX, "{} destinations", others.len());
        assert!(
            others.iter().all(|other| other.len() == dst.len()),
            "destinations differ in length"
        );
        for operand in operands {
            match operand {
                Operand::Destination => {}
                Operand::Bytes { bytes, form } => {
                    let len = count * form.bytes(self.data_type);
                    assert!(bytes.len() == len, "an operand of another length");
                }
                Operand::Other(place) => assert!(*place < others.len(), "no such destination"),
            }
        }
        let Some(vectors) = self.vectors else {
            return self.combine_part(dst, others, operands, 0..count);
        };
        let head = unaligned_head(dst, width);
        self.combine_part(dst, others, operands, 0..head);
        let mut places = [std::ptr::null_mut(); limits::SOURCES_MAX];
        for (place, other) in places.iter_mut().zip(&mut *others) {
            *place = other.as_mut_ptr();
        }
        let places = &places[..others.len()];
        let (form, finish) = (Form::Element, self.finish);
        let is_line = |place: *mut u8| (place.addr() + head * width).is_multiple_of(CACHE_LINE);
        let non_temporal =
            non_temporal && is_line(dst.as_mut_ptr()) && places.iter().all(|place| is_line(*place));
        let mut job =
            Job { dst: &mut *dst, form, count, operands, finish, others: places, non_temporal };
        let done = vectors.run(&mut job, head);
        self.combine_part(dst, others, operands, done..count);
    }

    /// Does the elements `range` of `combine_to_all`, one at a time.
    fn combine_part(
        &self,
        dst: &mut [u8],
        others: &mut [&mut [u8]],
        operands: &[Operand<'_>],
        range: Range<usize>,
    ) {
        if range.is_empty() {
            return;
        }
        let part = |form: Form| {
            let width = form.bytes(self.data_type);
            range.start * width..range.end * width
        };
        let mut parts = [Operand::Destination; limits::SOURCES_MAX];
        for (part_of, operand) in parts.iter_mut().zip(operands) {
            *part_of = match *operand {
                Operand::Destination => continue,
                Operand::Bytes { bytes, form } => {
                    Operand::Bytes { bytes: &bytes[part(form)], form }
                }
                Operand::Other(place) => Operand::elements(&others[place][part(Form::Element)]),
            };
        }
        let (form, finish, count) = (Form::Element, self.finish, range.len());
        let dst = &mut dst[part(form)];
        let operands = &parts[..operands.len()];
        let mut job =
            Job { dst: &mut *dst, form, count, operands, finish, others: &[], non_temporal: false };
        (self.scalar.run)(&mut job, 0..count);
        for other in others {
            other[part(form)].copy_from_slice(dst);
        }
    }

    /// Combines the elements in `dst` with those at the front of `line` into final values. The
    /// order of two operands makes no difference.
    ///
    /// # Panics
    /// If `dst` is longer than a line.
    #[inline]
    pub fn combine_line(&self, dst: &mut [u8], line: &Line) {
        assert!(dst.len() <= size_of::<Line>(), "{} bytes are more than a line", dst.len());
        (self.scalar.line)(dst, line, self.finish);
    }

    /// Writes the final combination of the elements at the front of `lines` to `dst`, from left to
    /// right. For few elements it is faster than `combine`, since it has less to set up.
    ///
    /// # Panics
    ///
    /// If `dst` is longer than a line.
    #[inline]
    pub fn combine_lines(&self, dst: &mut [u8], lines: &[Line]) {
        assert!(dst.len() <= size_of::<Line>(), "{} bytes are more than a line", dst.len());
        (self.scalar.lines)(dst, lines, self.finish);
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("data_type", &self.data_type)
            .field("finish", &self.finish)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// The number of values of `width` bytes before the first cache line of a large destination. Stores
/// that span two lines are slower.
fn unaligned_head(dst: &[u8], width: usize) -> usize {
    let bytes = dst.as_ptr().addr().wrapping_neg() % CACHE_LINE;
    if dst.len() < ALIGN_FROM || !bytes.is_multiple_of(width) { 0 } else { bytes / width }
}

const CACHE_LINE: usize = 64;

/// Least bytes of a destination whose alignment repays the scalar head.
const ALIGN_FROM: usize = 4096;

fn divisor(ranks: usize) -> u32 {
    assert!(
        (1..=limits::RANKS_MAX).contains(&ranks),
        "an average over {ranks} ranks; a communicator has 1 to {}",
        limits::RANKS_MAX,
    );
    u32::try_from(ranks).unwrap_or(u32::MAX)
}

/// Floats can represent every number of ranks, and so can the types in which integers divide.
const _: () = assert!(limits::RANKS_MAX < 1 << f32::MANTISSA_DIGITS);
