//! The 8-bit floats of the Open Compute Project, as types without arithmetic.

use std::cmp::Ordering;
use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::format::{self, Format};

/// Defines an 8-bit float over its format.
macro_rules! float8 {
    ($(#[$doc:meta])* $name:ident, $format:expr) => {
        $(#[$doc])*
        ///
        /// Compares by value: NaN is unequal to itself, and the zeros are equal.
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            const FORMAT: Format = $format;

            /// The largest finite value.
            pub const MAX: Self = Self::from_f32(f32::MAX);

            /// The canonical NaN.
            pub const NAN: Self = Self::from_f32(f32::NAN);

            /// Makes the value with these bits.
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Returns the bits.
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Converts to the nearest value, ties to even. Finite values beyond [`Self::MAX`]
            /// become [`Self::MAX`] with their sign; any NaN becomes [`Self::NAN`].
            #[must_use]
            #[expect(clippy::cast_possible_truncation, reason = "a code has 8 bits")]
            pub const fn from_f32(value: f32) -> Self {
                Self(Self::FORMAT.encode(value) as u8)
            }

            /// Converts to `f32`, exactly.
            #[must_use]
            pub const fn to_f32(self) -> f32 {
                Self::FORMAT.decode(self.0 as u32)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> Self {
                value.to_f32()
            }
        }
    };
}

float8! {
    /// 8-bit float with 4 exponent and 3 mantissa bits: up to 448, in steps of 2^-9 near zero. It
    /// has no infinity, so infinities become [`Self::MAX`] with their sign.
    F8E4M3, format::E4M3
}

float8! {
    /// 8-bit float with 5 exponent and 2 mantissa bits: up to 57344, in steps of 2^-16 near zero.
    /// Infinities stay infinite.
    F8E5M2, format::E5M2
}
