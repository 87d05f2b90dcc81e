//! The arithmetic of the types in which values are combined.

use bytemuck::Pod;

/// A type in which values are combined.
#[expect(unnameable_types, reason = "part of what seals `Element`")]
pub trait Accumulator: Pod {
    /// `self + other`; integers wrap.
    fn sum(self, other: Self) -> Self;

    /// `self * other`; integers wrap.
    fn prod(self, other: Self) -> Self;

    /// The smaller of the two. NaN if either is NaN; -0 is smaller than +0.
    fn min(self, other: Self) -> Self;

    /// The larger of the two. NaN if either is NaN; +0 is larger than -0.
    fn max(self, other: Self) -> Self;

    /// Combines the bits of both. No operation does so with floats.
    fn bitwise(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self;

    /// `self / ranks`; integers truncate toward zero.
    fn divide(self, ranks: u32) -> Self;

    /// Converts `factor` to this type: for floats to the nearest value, ties to even; for integers
    /// truncated toward zero and clamped to the type's range.
    fn from_factor(factor: f64) -> Self;

    /// Returns the value, or the canonical NaN for any NaN.
    fn canonical(self) -> Self;
}

/// Integers divide in a type that can represent every number of ranks.
macro_rules! integer {
    ($($type:ty, $wide:ty);+) => {$(
        impl Accumulator for $type {
            #[inline]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }

            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_possible_wrap,
                clippy::cast_lossless,
                clippy::unnecessary_cast,
                reason = "all bits are kept; only some of the types change"
            )]
            fn bitwise(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
                combine(self as u64, other as u64) as Self
            }

            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                reason = "no quotient is larger than the dividend; only some of the types are cut"
            )]
            fn divide(self, ranks: u32) -> Self {
                (<$wide>::from(self) / <$wide>::from_factor(ranks.into())) as Self
            }

            #[inline]
            #[expect(clippy::cast_possible_truncation, reason = "documented so")]
            fn from_factor(factor: f64) -> Self {
                factor as Self
            }

            #[inline]
            fn canonical(self) -> Self {
                self
            }
        }
    )+};
}

integer!(i8, i32; u8, u32; i32, i32; u32, u32; i64, i64; u64, u64);

macro_rules! float {
    ($type:ty, $bits:ty, $nan:expr) => {
        impl Accumulator for $type {
            #[inline]
            fn sum(self, other: Self) -> Self {
                self + other
            }

            #[inline]
            fn prod(self, other: Self) -> Self {
                self * other
            }

            #[inline]
            fn min(self, other: Self) -> Self {
                if self < other || self.is_nan() || (self == other && self.is_sign_negative()) {
                    self
                } else {
                    other
                }
            }

            #[inline]
            fn max(self, other: Self) -> Self {
                if self > other || self.is_nan() || (self == other && self.is_sign_positive()) {
                    self
                } else {
                    other
                }
            }

            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::unnecessary_cast,
                clippy::cast_lossless,
                reason = "all bits are kept; only one of the types changes"
            )]
            fn bitwise(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
                Self::from_bits(combine(self.to_bits() as u64, other.to_bits() as u64) as $bits)
            }

            #[inline]
            fn divide(self, ranks: u32) -> Self {
                self / Self::from_factor(ranks.into())
            }

            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                reason = "documented so; only one of the types is cut"
            )]
            fn from_factor(factor: f64) -> Self {
                factor as Self
            }

            #[inline]
            fn canonical(self) -> Self {
                if self.is_nan() { Self::from_bits($nan) } else { self }
            }
        }
    };
}

float!(f32, u32, crate::format::NAN_BITS);
float!(f64, u64, 0x7ff8_0000_0000_0000);
