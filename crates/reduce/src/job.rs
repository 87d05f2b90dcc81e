//! One run of a kernel: its operands, its destinations, and the last step of each result.

use ringfold_types::DataType;

/// The representation of the values of an operand or a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Elements of the data type. A destination in this form receives final values: averages
    /// divided, and values rounded.
    Element,
    /// Intermediate values of the data type's accumulator (`f32` for shorter floats, the data type
    /// itself otherwise).
    Accumulator,
}

impl Form {
    /// Bytes of one value of `data_type` in this form.
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

/// One input of a reduction.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// The destination's contents before the call, in the destination's form.
    Destination,
    /// Values elsewhere, with any alignment.
    Bytes {
        /// The values, as many as the destination has.
        bytes: &'a [u8],
        /// Their form.
        form: Form,
    },
    /// The contents before the call of another destination, elements, by its index among the
    /// others.
    Other(usize),
}

impl<'a> Operand<'a> {
    /// An operand of elements of the data type.
    #[must_use]
    pub const fn elements(bytes: &'a [u8]) -> Self {
        Self::Bytes { bytes, form: Form::Element }
    }

    /// An operand of intermediate values.
    #[must_use]
    pub const fn accumulators(bytes: &'a [u8]) -> Self {
        Self::Bytes { bytes, form: Form::Accumulator }
    }
}

/// The last step for a combined value before it is rounded to an element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finish {
    Keep,
    Divide { ranks: u32 },
    Scale { factor: f64 },
}

/// One run, which writes the combination of the operands to the `count` values of `dst`.
///
/// Only `Kernel` makes it, after a check that `dst` and every operand hold `count` values.
pub(crate) struct Job<'a> {
    pub(crate) dst: &'a mut [u8],
    pub(crate) form: Form,
    pub(crate) count: usize,
    pub(crate) operands: &'a [Operand<'a>],
    pub(crate) finish: Finish,
    /// Further destinations of the results, `count` values each in the same form; only vectors
    /// write them.
    pub(crate) others: &'a [*mut u8],
    /// Whether vectors write elements by non-temporal stores, which leave no lines in the caches.
    /// Then `dst` and all others reach a cache line after the same number of values.
    pub(crate) non_temporal: bool,
}

impl Job<'_> {
    /// The address of an operand's values, and their form.
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
            Operand::Other(_) => unreachable!("only vectors read other destinations"),
        }
    }
}
