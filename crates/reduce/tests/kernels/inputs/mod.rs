//! Inputs of the kernels: edge values, seeded random values, and the levels of this CPU.

use ringfold_harness::{Random, needed};
use ringfold_reduce::{F8E4M3, F8E5M2, Form, Level};
use ringfold_types::DataType;

/// The SIMD levels that this CPU has.
pub(crate) fn available() -> Vec<Level> {
    let simd = Level::ALL.into_iter().filter(|level| *level != Level::Scalar);
    simd.filter(|level| level.is_available()).collect()
}

/// The SIMD levels that this CPU has. Prints the skipped ones, and fails for a missing level that
/// `RINGFOLD_TEST_REQUIRE` (names with commas between) demands.
pub(crate) fn levels() -> Vec<Level> {
    for level in Level::ALL.into_iter().filter(|level| !level.is_available()) {
        let _ = needed::skipped(level.name(), "this CPU lacks it");
    }
    available()
}

/// Important bit patterns: zeros, smallest and largest of each kind, infinities, NaNs.
pub(crate) fn edges(data_type: DataType) -> Vec<[u8; 8]> {
    let floats = |mantissa: u32, bits: u32| {
        let one = |shift: u32| 1u64 << shift;
        let infinity = one(bits - 1) - one(mantissa);
        let small = [0, 1, 2, 3, one(mantissa) - 1, one(mantissa), one(mantissa) + 1];
        let middle = [infinity / 2, infinity / 2 + 1, infinity / 4 * 3, infinity / 4];
        let large = [infinity - 1, infinity, infinity + 1, infinity + one(mantissa - 1)];
        let positive = [&small[..], &middle, &large, &[one(bits - 1) - 1]].concat();
        let negative: Vec<u64> = positive.iter().map(|x| x | one(bits - 1)).collect();
        [positive, negative].concat()
    };
    let patterns = match data_type {
        DataType::F16 => floats(10, 16),
        DataType::Bf16 => floats(7, 16),
        DataType::F32 => floats(23, 32),
        DataType::F64 => floats(52, 64),
        DataType::F8E4M3 => floats(3, 8),
        DataType::F8E5M2 => floats(2, 8),
        _ => {
            let bits = data_type.bytes() * 8;
            let ends = [0, 1, 2, 7, 100, u64::MAX, u64::MAX - 1, u64::MAX - 6];
            let top = 1u64 << (bits - 1);
            let middles = [top, top - 1, top + 1, 1 << (bits / 2), (1 << (bits / 2)) - 1];
            [&ends[..], &middles].concat()
        }
    };
    patterns.into_iter().map(u64::to_le_bytes).collect()
}

/// The midpoints between neighbouring values of a short float, without infinities.
pub(crate) fn rounding_boundaries(data_type: DataType) -> Vec<f32> {
    let codes = 0..1u32 << (8 * data_type.bytes());
    let value = |code: u32| match (data_type, code.to_le_bytes()) {
        (DataType::F16, [a, b, ..]) => half::f16::from_le_bytes([a, b]).to_f32(),
        (DataType::Bf16, [a, b, ..]) => half::bf16::from_le_bytes([a, b]).to_f32(),
        (DataType::F8E4M3, [a, ..]) => F8E4M3::from_bits(a).to_f32(),
        (_, [a, ..]) => F8E5M2::from_bits(a).to_f32(),
    };
    let mut values: Vec<f32> = codes.map(value).filter(|x| x.is_finite()).collect();
    values.sort_by(f32::total_cmp);
    values.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0).chain(values.clone()).collect()
}

/// Numbers from a seed that is the test's name, so a failure repeats in every run.
pub(crate) fn random(test: &str) -> Random {
    Random::new(test.bytes().fold(0, |seed, byte| 31 * seed % (1 << 40) + u64::from(byte)))
}

/// Values of a form: a quarter are edges, half have random bits, and a quarter are near one.
pub(crate) fn values(
    random: &mut Random,
    data_type: DataType,
    form: Form,
    count: usize,
) -> Vec<u8> {
    let stored = if form == Form::Element { data_type } else { data_type.accumulator() };
    let edges = edges(stored);
    let mut bytes = Vec::with_capacity(count * stored.bytes());
    for _ in 0..count {
        let value = match random.below(4) {
            0 => random.pick(&edges),
            1 => near_one(stored, random.bits()),
            _ => random.bits().to_le_bytes(),
        };
        bytes.extend_from_slice(&value[..stored.bytes()]);
    }
    bytes
}

/// A value with a magnitude between 1/4 and 2 if the type is a float.
fn near_one(data_type: DataType, random: u64) -> [u8; 8] {
    let (exponent, mantissa) = match data_type {
        DataType::F16 => (13u64, 10u32),
        DataType::Bf16 => (125, 7),
        DataType::F32 => (125, 23),
        DataType::F64 => (1021, 52),
        DataType::F8E4M3 => (5, 3),
        DataType::F8E5M2 => (13, 2),
        _ => return (random % 100).to_le_bytes(),
    };
    let sign = (random >> 63) << (8 * data_type.bytes() - 1);
    let bits = (exponent << mantissa) + random % (3 << mantissa);
    (sign | bits).to_le_bytes()
}
