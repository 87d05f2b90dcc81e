//! The entry point: a reduction resolved for this CPU.

use std::fmt;
use std::ops::Range;

use ringfold_types::{DataType, ReduceOp, limits};

use crate::job::{Finish, Form, Job, Line, Operand};
use crate::level::Level;
use crate::scalar::{self, Fold};
use crate::simd;

/// One reduction of one data type, resolved once and then cheap to run and to copy.
#[derive(Clone, Copy)]
pub struct Kernel {
    data_type: DataType,
    finish: Finish,
    level: Level,
    /// For all values but the last few; absent in the scalar kernel.
    vectors: Option<simd::Loop>,
    scalar: scalar::Loops,
}

impl Kernel {
    /// The fastest kernel of this CPU. `ranks` is what an average divides by.
    ///
    /// `PreMulSum` acts as `Sum` here: its scaling is a pass of its own ([`scale`](crate::scale)),
    /// because the factor belongs to a rank's own input.
    ///
    /// # Panics
    ///
    /// If `ranks` is 0 or more than `limits::RANKS_MAX`.
    #[must_use]
    pub fn new(data_type: DataType, op: ReduceOp, ranks: usize) -> Self {
        Self::of_op(Level::best(), data_type, op, ranks)
    }

    /// The kernel that defines the results.
    ///
    /// # Panics
    ///
    /// As [`Kernel::new`].
    #[must_use]
    pub fn scalar(data_type: DataType, op: ReduceOp, ranks: usize) -> Self {
        Self::of_op(Level::Scalar, data_type, op, ranks)
    }

    /// The kernel of a given level, or `None` where the CPU lacks it. For tests and benches.
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
        };
        Self::resolve(level, data_type, fold, finish)
    }

    /// The kernel that multiplies its one operand.
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

    /// Which instructions it uses.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The data type whose elements it reduces.
    #[must_use]
    pub const fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Writes to `dst` the combination of the operands, from left to right.
    ///
    /// Values are combined in the accumulator type. In `Form::Element` the result is finished: an
    /// average is divided, and a short float rounded, once. In `Form::Accumulator` it is not. A
    /// single operand is converted, and finished likewise.
    ///
    /// # Panics
    ///
    /// If there are no operands or more than `limits::SOURCES_MAX`, or if an operand does not hold
    /// as many values as `dst`.
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
            past: false,
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

    /// As `combine`, of elements, with the results written to `others` too: in one pass,
    /// so that loads and stores wait for memory together. If they are to go `past` the caches,
    /// these keep nothing of them, where that is possible: for what is so long that they would lose
    /// it, and much else, before it is read, and is in none of them now.
    ///
    /// # Panics
    ///
    /// As `combine`, or if not all of the destinations have one length, or if there are more than
    /// `limits::SOURCES_MAX` others.
    pub fn combine_to_all(
        &self,
        dst: &mut [u8],
        others: &mut [&mut [u8]],
        operands: &[Operand<'_>],
        past: bool,
    ) {
        let width = self.data_type.bytes();
        let count = dst.len() >> width.trailing_zeros();
        assert!(dst.len() == count * width, "no whole number of elements");
        assert!((1..=limits::SOURCES_MAX).contains(&operands.len()), "1 to 16 operands");
        assert!(others.len() <= limits::SOURCES_MAX, "too many destinations");
        assert!(others.iter().all(|other| other.len() == dst.len()), "destinations differ");
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
        let past = past && is_line(dst.as_mut_ptr()) && places.iter().all(|place| is_line(*place));
        let mut job = Job { dst: &mut *dst, form, count, operands, finish, others: places, past };
        let done = vectors.run(&mut job, head);
        self.combine_part(dst, others, operands, done..count);
    }

    /// Elements `range` of `combine_to_all`, one at a time.
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
            Job { dst: &mut *dst, form, count, operands, finish, others: &[], past: false };
        (self.scalar.run)(&mut job, 0..count);
        for other in others {
            other[part(form)].copy_from_slice(dst);
        }
    }

    /// Combines the elements in `dst` with those at the front of `line`, and finishes them. For two
    /// the order makes no difference.
    ///
    /// # Panics
    /// If `dst` is longer than a line.
    #[inline]
    pub fn combine_line(&self, dst: &mut [u8], line: &Line) {
        assert!(dst.len() <= size_of::<Line>(), "{} bytes are more than a line", dst.len());
        (self.scalar.line)(dst, line, self.finish);
    }

    /// Writes to `dst` the finished combination of the elements at the front of `lines`, from left
    /// to right: `combine` for a few elements, without the time that it takes to begin.
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

/// How many values of `width` bytes lie before the first cache line of a large destination: stores
/// that straddle two lines cost a sixth of the speed in the second cache.
fn unaligned_head(dst: &[u8], width: usize) -> usize {
    let bytes = dst.as_ptr().addr().wrapping_neg() % CACHE_LINE;
    if dst.len() < ALIGN_FROM || !bytes.is_multiple_of(width) { 0 } else { bytes / width }
}

const CACHE_LINE: usize = 64;

/// Bytes of a destination from which aligning it repays the scalar head.
const ALIGN_FROM: usize = 4096;

fn divisor(ranks: usize) -> u32 {
    assert!(
        (1..=limits::RANKS_MAX).contains(&ranks),
        "an average over {ranks} ranks; a communicator has 1 to {}",
        limits::RANKS_MAX,
    );
    u32::try_from(ranks).unwrap_or(u32::MAX)
}

/// Floats hold every number of ranks, and so do the types that integers divide in.
const _: () = assert!(limits::RANKS_MAX < 1 << f32::MANTISSA_DIGITS);
