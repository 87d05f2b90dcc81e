//! Reduction operations.

use core::fmt;
use core::str::FromStr;

/// An associative and commutative operation that combines elements. Integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Smallest. A NaN anywhere gives NaN.
    Min,
    /// Largest. A NaN anywhere gives NaN.
    Max,
    /// Sum divided by the number of ranks; integers wrap in the sum and truncate toward zero in the
    /// division.
    Avg,
    /// Sum of all ranks' elements, each multiplied by its rank's own scale first (NCCL's
    /// premulsum). The product is rounded to the data type before it is summed.
    PreMulSum(Scale),
}

impl ReduceOp {
    /// Makes the sum with factor `scale` for this rank's elements; `scale` may differ between
    /// ranks.
    #[must_use]
    pub const fn pre_mul_sum(scale: f64) -> Self {
        Self::PreMulSum(Scale::new(scale))
    }

    /// The operation's code for comparison and for the wire. It omits the scale.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Sum => 0,
            Self::Prod => 1,
            Self::Min => 2,
            Self::Max => 3,
            Self::Avg => 4,
            Self::PreMulSum(_) => 5,
        }
    }

    /// The operation with that code; the scale of a `PreMulSum` is 1.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Sum,
            1 => Self::Prod,
            2 => Self::Min,
            3 => Self::Max,
            4 => Self::Avg,
            5 => Self::pre_mul_sum(1.0),
            _ => return None,
        })
    }

    /// The name, as in `sum`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::PreMulSum(_) => "premulsum",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown name of a reduction operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReduceOp;

impl fmt::Display for UnknownReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown reduction; one of sum prod min max avg")
    }
}

impl core::error::Error for UnknownReduceOp {}

impl FromStr for ReduceOp {
    type Err = UnknownReduceOp;

    /// Accepts the names of the operations without a parameter.
    fn from_str(name: &str) -> Result<Self, UnknownReduceOp> {
        [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg]
            .into_iter()
            .find(|op| op.name() == name)
            .ok_or(UnknownReduceOp)
    }
}

/// The factor of a `ReduceOp::PreMulSum`. Two factors are equal if their bits are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scale(u64);

impl Scale {
    /// Makes a scale of this factor.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self(factor.to_bits())
    }

    /// The factor.
    #[must_use]
    pub const fn factor(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Scale {
    fn from(factor: f64) -> Self {
        Self::new(factor)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.factor(), f)
    }
}

impl fmt::Debug for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scale({})", self.factor())
    }
}
