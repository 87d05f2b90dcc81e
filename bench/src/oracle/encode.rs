//! Encodes numbers as bytes of any data type, without the library's conversions.

use ringfold::DataType;

/// The little-endian bytes of an element. Only the first `DataType::bytes` are used.
pub(super) type Number = [u8; 8];

/// Encodes `value`, rounded to the nearest number of the type, ties to even. It must be in the
/// type's range.
#[expect(clippy::cast_possible_truncation, reason = "rounding is the purpose")]
pub(super) fn encode(data_type: DataType, value: f64) -> Number {
    let bits = match data_type {
        DataType::F64 => value.to_bits(),
        DataType::F32 => (value as f32).to_bits().into(),
        DataType::F16 => float_bits(value, 5, 10),
        DataType::Bf16 => float_bits(value, 8, 7),
        DataType::F8E4M3 => float_bits(value, 4, 3),
        DataType::F8E5M2 => float_bits(value, 5, 2),
        _ => (value as i64).cast_unsigned(),
    };
    bits.to_le_bytes()
}

/// Wraps an integer to an integer type.
pub(super) fn wrap(data_type: DataType, value: i64) -> i64 {
    let bits = 64 - 8 * data_type.bytes();
    match data_type {
        DataType::I8 | DataType::I32 | DataType::I64 => value << bits >> bits,
        _ => ((value << bits).cast_unsigned() >> bits).cast_signed(),
    }
}

/// Returns the bits of a float with these numbers of exponent and mantissa bits.
#[expect(clippy::cast_possible_truncation, reason = "a few bits, in range")]
fn float_bits(value: f64, exponent_bits: u32, mantissa_bits: i32) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (exponent_bits.cast_signed() + mantissa_bits);
    let size = value.abs();
    if size == 0.0 {
        return sign;
    }
    let smallest = 2 - (1_i32 << (exponent_bits - 1));
    let exponent = (i32::try_from(size.to_bits() >> 52).unwrap_or(0) - 1023).max(smallest);
    // The value in units of the last place; exact, since only the exponent changes.
    let places = (size * 2_f64.powi(mantissa_bits - exponent)).round_ties_even() as u64;
    // A carry out of the mantissa raises the exponent.
    let steps = u64::try_from(exponent - smallest).unwrap_or(0);
    sign | ((steps << mantissa_bits) + places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_patterns() {
        let bits = |data_type: DataType, value| {
            let bytes = 8 * (8 - data_type.bytes());
            u64::from_le_bytes(encode(data_type, value)) << bytes >> bytes
        };
        assert_eq!(bits(DataType::F16, 1.0), 0x3c00);
        assert_eq!(bits(DataType::F16, -2.0), 0xc000);
        assert_eq!(bits(DataType::F16, 65504.0), 0x7bff);
        assert_eq!(bits(DataType::F16, 2_f64.powi(-24)), 1);
        assert_eq!(bits(DataType::Bf16, 1.0), 0x3f80);
        assert_eq!(bits(DataType::Bf16, 257.0), 0x4380, "a tie goes to even");
        assert_eq!(bits(DataType::Bf16, 259.0), 0x4382, "a tie goes to even");
        assert_eq!(bits(DataType::F8E4M3, 1.0), 0x38);
        assert_eq!(bits(DataType::F8E4M3, 448.0), 0x7e);
        assert_eq!(bits(DataType::F8E4M3, 2_f64.powi(-9)), 1);
        assert_eq!(bits(DataType::F8E5M2, 1.0), 0x3c);
        assert_eq!(bits(DataType::F8E5M2, 57344.0), 0x7b);
        assert_eq!(bits(DataType::I8, -1.0), 0xff);
        assert_eq!(wrap(DataType::I8, 200), -56);
        assert_eq!(wrap(DataType::U8, 260), 4);
    }
}
