//! Data types of elements.

use core::fmt;
use core::str::FromStr;

use crate::names::{Names, UnknownName, find};

/// The data type of an element. All types are little-endian in memory and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DataType {
    /// Signed 8-bit integer.
    I8 = 0,
    /// Unsigned 8-bit integer.
    U8 = 1,
    /// Signed 32-bit integer.
    I32 = 2,
    /// Unsigned 32-bit integer.
    U32 = 3,
    /// Signed 64-bit integer.
    I64 = 4,
    /// Unsigned 64-bit integer.
    U64 = 5,
    /// IEEE 754 binary16.
    F16 = 6,
    /// bfloat16: the upper half of an `f32`.
    Bf16 = 7,
    /// IEEE 754 binary32.
    F32 = 8,
    /// IEEE 754 binary64.
    F64 = 9,
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinity (OCP 8-bit floating point, E4M3).
    F8E4M3 = 10,
    /// 8-bit float, 5 exponent and 2 mantissa bits (OCP 8-bit floating point, E5M2).
    F8E5M2 = 11,
}

impl DataType {
    /// Every data type, in the order in which perf tools list them.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::F8E4M3,
        Self::F8E5M2,
    ];

    /// Size of an element in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The data type of intermediate results of a reduction: `F32` for shorter floats, the type
    /// itself otherwise.
    #[must_use]
    pub const fn accumulator(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 | Self::F8E4M3 | Self::F8E5M2 => Self::F32,
            other => other,
        }
    }

    /// Whether the elements are floats.
    #[must_use]
    pub const fn is_float(self) -> bool {
        !matches!(self, Self::I8 | Self::U8 | Self::I32 | Self::U32 | Self::I64 | Self::U64)
    }

    /// Whether intermediate results are wider than the elements.
    #[must_use]
    pub const fn is_short_float(self) -> bool {
        self.bytes() != self.accumulator().bytes()
    }

    /// The type whose discriminant is `code`, as ranks send it to each other.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::I8,
            1 => Self::U8,
            2 => Self::I32,
            3 => Self::U32,
            4 => Self::I64,
            5 => Self::U64,
            6 => Self::F16,
            7 => Self::Bf16,
            8 => Self::F32,
            9 => Self::F64,
            10 => Self::F8E4M3,
            11 => Self::F8E5M2,
            _ => return None,
        })
    }

    /// The names of each type, by its code.
    pub(crate) const NAMES: Names = &[
        &["i8", "int8"],
        &["u8", "uint8"],
        &["i32", "int32", "int"],
        &["u32", "uint32"],
        &["i64", "int64"],
        &["u64", "uint64"],
        &["f16", "float16", "fp16", "half"],
        &["bf16", "bfloat16"],
        &["f32", "float32", "fp32", "float"],
        &["f64", "float64", "fp64", "double"],
        &["f8e4m3", "fp8e4m3", "float8e4m3", "float8e4m3fn"],
        &["f8e5m2", "fp8e5m2", "float8e5m2"],
    ];

    /// The short Rust-like name, as in `f32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize][0]
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = UnknownName;

    /// Takes the short names and those of C, numpy, torch and nccl-tests, as in `f16`, `half`,
    /// `float16` and `fp16`. Case, `_` and `-` do not matter.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let of_row = |row| Self::ALL.into_iter().find(|it| *it as usize == row);
        find("data type", Self::NAMES, of_row, name)
    }
}
