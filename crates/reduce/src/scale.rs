//! The scaling pass of a scaled sum: each rank multiplies its own input before it is summed.

use ringfold_types::DataType;

use crate::job::{Form, Operand};
use crate::kernel::Kernel;
use crate::level::Level;

/// Multiplies elements by `factor`, from `src` to `dst`, or in place where `src` is `None`.
///
/// The factor is first converted to the type in which values are combined (`f32` for floats
/// shorter than that), and the product is rounded once to the data type. For integers the factor
/// is truncated toward zero and held within the type's range, and the product wraps; ask
/// [`scale_fits`] first.
///
/// # Panics
///
/// If `dst` is no whole number of elements, or `src` is not as long as `dst`.
pub fn scale(data_type: DataType, dst: &mut [u8], src: Option<&[u8]>, factor: f64) {
    let operand = src.map_or(Operand::Destination, Operand::elements);
    Kernel::scaling(Level::best(), data_type, factor).combine(dst, Form::Element, &[operand]);
}

/// Whether `factor` keeps its value, or for floats is merely rounded, in the type that the
/// elements are multiplied in: an integer takes integers within its range; a float takes all but
/// finite factors that would become infinite.
#[must_use]
pub fn scale_fits(data_type: DataType, factor: f64) -> bool {
    // Powers of two, hence exact as `f64`, where the largest integers would not be.
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
