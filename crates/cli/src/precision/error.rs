//! Rounding errors of sums: random inputs, exact sums, and the bound.

use ringfold_types::{DataType, mix};

use super::execute::Way;

/// The unit roundoff of a type: the largest relative error of a value that is rounded to nearest.
/// `None` for types whose sums are not compared here.
pub(super) const fn unit_roundoff(data_type: DataType) -> Option<f64> {
    let significant_bits = match data_type {
        DataType::F8E5M2 => 3,
        DataType::F8E4M3 => 4,
        DataType::Bf16 => 8,
        DataType::F16 => 11,
        DataType::F32 => f32::MANTISSA_DIGITS,
        _ => return None,
    };
    Some(1.0 / (1_u64 << significant_bits) as f64)
}

/// The distributions of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signs {
    /// Uniform in [-1, 1].
    Both,
    /// Uniform in [0, 1].
    Positive,
}

impl Signs {
    /// The distribution of the inputs at an index. The two alternate, so one call has both.
    pub(super) const fn at(index: usize) -> Self {
        if index.is_multiple_of(2) { Self::Both } else { Self::Positive }
    }
}

/// The inputs of one rank: random, and the same in each run.
pub(super) fn inputs(rank: usize, count: usize) -> Vec<f32> {
    let mut state = (rank as u64) << 32;
    let mut uniform = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(state) >> 40) as f32 / (1_u64 << 24) as f32
    };
    let input = |index| match Signs::at(index) {
        Signs::Both => 2.0 * uniform() - 1.0,
        Signs::Positive => uniform(),
    };
    (0..count).map(input).collect()
}

/// An exact sum, and the sum of the magnitudes of its inputs. An `f64` has room for sums of floats
/// of up to 32 bits: its own rounding is 2^29 times finer than theirs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exact {
    sum: f64,
    magnitudes: f64,
}

impl Exact {
    pub(super) fn add(&mut self, input: f32) {
        self.sum += f64::from(input);
        self.magnitudes += f64::from(input).abs();
    }

    /// The error of a result, relative to the sum of magnitudes.
    pub(super) fn error_of(&self, result: f32) -> f64 {
        let error = (f64::from(result) - self.sum).abs();
        if error > 0.0 { error / self.magnitudes } else { 0.0 }
    }
}

/// Errors of several results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    squares: f64,
    count: usize,
    worst: f64,
}

impl Errors {
    pub(super) fn add(&mut self, error: f64) {
        self.squares += error * error;
        self.count += 1;
        self.worst = self.worst.max(error);
    }

    /// The root mean square.
    pub(super) fn typical(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }

    pub(super) const fn worst(&self) -> f64 {
        self.worst
    }
}

/// The bound on the error relative to the sum of magnitudes. An addition or a rounding multiplies
/// its exact result by 1 + d, where |d| is at most the unit roundoff of its type. So the way of an
/// input multiplies it by such factors, and changes it by at most their product minus one.
///
/// The bound holds if no sum overflows. Sums of floats that underflow are exact.
///
/// Source: Higham, "Accuracy and stability of numerical algorithms", 2nd edition, 2002, section
/// 4.2.
pub(super) fn bound(data_type: DataType, way: Way) -> Option<f64> {
    let growth = |data_type, operations: u32| {
        let factor = 1.0 + unit_roundoff(data_type)?;
        Some((0..operations).fold(1.0, |product, _| product * factor))
    };
    let additions = growth(data_type.accumulator(), way.additions)?;
    Some(growth(data_type, way.roundings)? * additions - 1.0)
}
