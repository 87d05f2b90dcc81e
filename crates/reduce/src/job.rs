//! What one run of a kernel combines, and how it finishes the result.

use ringfold_types::DataType;

/// What the values of an operand or a destination are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Elements of the data type. A destination in this form receives finished values: divided by
    /// the number of ranks in an average, and rounded.
    Element,
    /// Unfinished values of the data type's accumulator (`f32` for shorter floats, the data type
    /// itself otherwise).
    Accumulator,
}

impl Form {
    /// Bytes that one value of `data_type` takes in this form.
    #[must_use]
    pub const fn bytes(self, data_type: DataType) -> usize {
        match self {
            Self::Element => data_type.bytes(),
            Self::Accumulator => data_type.accumulator().bytes(),
        }
    }
}

/// A cache line of elements.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Line(pub [u8; 64]);

/// One of the inputs of a reduction.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// What the destination holds before the call, in the destination's form.
    Destination,
    /// Values elsewhere, of any alignment.
    Bytes {
        /// As many values as the destination has.
        bytes: &'a [u8],
        /// What they are.
        form: Form,
    },
    /// What another destination holds before the call, by its place among the others: elements.
    Other(usize),
}

impl<'a> Operand<'a> {
    /// Elements of the data type.
    #[must_use]
    pub const fn elements(bytes: &'a [u8]) -> Self {
        Self::Bytes { bytes, form: Form::Element }
    }

    /// Unfinished values.
    #[must_use]
    pub const fn accumulators(bytes: &'a [u8]) -> Self {
        Self::Bytes { bytes, form: Form::Accumulator }
    }
}

/// What happens to a combined value before it is rounded to an element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finish {
    Keep,
    Divide { ranks: u32 },
    Scale { factor: f64 },
}

/// One run: `count` values of `dst` become the combination of the operands.
///
/// Made by `Kernel` alone, which has checked that `dst` and every operand hold `count` values.
pub(crate) struct Job<'a> {
    pub(crate) dst: &'a mut [u8],
    pub(crate) form: Form,
    pub(crate) count: usize,
    pub(crate) operands: &'a [Operand<'a>],
    pub(crate) finish: Finish,
    /// Where else the results go, in the same form: `count` values each, written by vectors alone.
    pub(crate) others: &'a [*mut u8],
    /// Whether vectors write elements past the caches, which keep nothing of them: `dst` and all
    /// others begin where a cache line does, but for the same number of values.
    pub(crate) past: bool,
}

impl Job<'_> {
    /// Where the values of an operand are, and their form.
    #[inline]
    pub(crate) fn values(&self, operand: &Operand<'_>) -> (*const u8, Form) {
        match *operand {
            Operand::Destination => (self.dst.as_ptr(), self.form),
            Operand::Bytes { bytes, form } => (bytes.as_ptr(), form),
            Operand::Other(place) => (self.others[place], Form::Element),
        }
    }

    /// The bytes of an operand, and their form.
    #[inline]
    pub(crate) fn source<'s>(&'s self, operand: &'s Operand<'_>) -> (&'s [u8], Form) {
        match *operand {
            Operand::Destination => (self.dst, self.form),
            Operand::Bytes { bytes, form } => (bytes, form),
            Operand::Other(_) => unreachable!("only vectors meet other destinations"),
        }
    }
}
