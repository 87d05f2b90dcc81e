//! Reduction operations.

use core::fmt;
use core::str::FromStr;

use crate::DataType;
use crate::names::{Names, UnknownName, find};

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
    /// Bitwise and. For integers only, as all operations below.
    BitAnd,
    /// Bitwise or.
    BitOr,
    /// Bitwise exclusive or.
    BitXor,
    /// 1 if all are true, and otherwise 0. An integer is true if it is not 0. A group of one rank
    /// keeps its value; so do the two operations below.
    LogicalAnd,
    /// 1 if any is true, and otherwise 0.
    LogicalOr,
    /// 1 if an odd number is true, and otherwise 0.
    LogicalXor,
}

impl ReduceOp {
    /// Every operation that has no parameter.
    pub const PLAIN: [Self; 11] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Avg,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
    ];

    /// Whether the operation combines integers only.
    #[must_use]
    pub const fn is_for_integers(self) -> bool {
        matches!(
            self,
            Self::BitAnd
                | Self::BitOr
                | Self::BitXor
                | Self::LogicalAnd
                | Self::LogicalOr
                | Self::LogicalXor
        )
    }

    /// Whether the operation combines elements of this type.
    #[must_use]
    pub const fn fits(self, data_type: DataType) -> bool {
        !(self.is_for_integers() && data_type.is_float())
    }

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
            Self::BitAnd => 6,
            Self::BitOr => 7,
            Self::BitXor => 8,
            Self::LogicalAnd => 9,
            Self::LogicalOr => 10,
            Self::LogicalXor => 11,
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
            6 => Self::BitAnd,
            7 => Self::BitOr,
            8 => Self::BitXor,
            9 => Self::LogicalAnd,
            10 => Self::LogicalOr,
            11 => Self::LogicalXor,
            _ => return None,
        })
    }

    /// The names of each operation in `PLAIN`.
    pub(crate) const NAMES: Names = &[
        &["sum", "add"],
        &["prod", "product"],
        &["min", "minimum"],
        &["max", "maximum"],
        &["avg", "average", "mean"],
        &["band", "bitand"],
        &["bor", "bitor"],
        &["bxor", "bitxor"],
        &["land", "logicaland"],
        &["lor", "logicalor"],
        &["lxor", "logicalxor"],
    ];

    /// The name, as in `sum`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreMulSum(_) => "premulsum",
            Self::Sum | Self::Prod | Self::Min | Self::Max | Self::Avg => {
                Self::NAMES[self.code() as usize][0]
            }
            _ => Self::NAMES[self.code() as usize - 1][0],
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = UnknownName;

    /// Takes the names of the operations without a parameter, as in `avg` and `mean`. Case, `_` and
    /// `-` do not matter.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("reduction", Self::NAMES, |row| Self::PLAIN.get(row).copied(), name)
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
