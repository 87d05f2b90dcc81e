//! The scaling pass of a scaled sum: each rank multiplies its own input before it is summed.

use ringfold_types::DataType;

use crate::job::{Form, Operand};
use crate::kernel::Kernel;
use crate::level::Level;

/// Multiplies the elements of `src` by `factor` into `dst`, or those of `dst` in place if `src` is
/// `None`.
///
/// The factor is first converted to the accumulator type (`f32` for shorter floats), and the
/// product is rounded once to the data type. For integers the factor is truncated toward zero and
/// clamped to the type's range, and the product wraps. [`scale_fits`] tells whether a factor suits
/// the type.
///
/// # Panics
///
/// If `dst` is not a whole number of elements, or the lengths of `src` and `dst` differ.
pub fn scale(data_type: DataType, dst: &mut [u8], src: Option<&[u8]>, factor: f64) {
    let operand = src.map_or(Operand::Destination, Operand::elements);
    Kernel::scaling(Level::best(), data_type, factor).combine(dst, Form::Element, &[operand]);
}

/// Whether `factor` keeps its value in the accumulator type, apart from rounding for floats. An
/// integer type accepts integers within its range. A float type accepts all factors except finite
/// ones that would become infinite.
#[must_use]
pub fn scale_fits(data_type: DataType, factor: f64) -> bool {
    // Powers of two are exact as `f64`; the largest integers would not be.
    let within = |least: f64, above: f64| factor.fract() == 0.0 && (least..above).contains(&factor);
    let power = |exponent: i32| 2f64.powi(exponent);
    match data_type {
        DataType::I8 => within(-power(7), power(7)),
        DataType::U8 => within(0.0, power(8)),
        DataType::I32 => within(-power(31), power(31)),
        DataType::U32 => within(0.0, power(32)),
        DataType::I64 => within(-power(63), power(63)),
        DataType::U64 => within(0.0, power(64)),
        DataType::F64 => true,
        DataType::F32 | DataType::F16 | DataType::Bf16 | DataType::F8E4M3 | DataType::F8E5M2 => {
            #[expect(clippy::cast_possible_truncation, reason = "this is what is asked")]
            let narrow = factor as f32;
            narrow.is_finite() || !factor.is_finite()
        }
    }
}
