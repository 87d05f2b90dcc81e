//! The scalar kernels against references that share no code with them: the `half` crate, a search
//! over all 8-bit floats, and arithmetic in `f64` where that is exact.

use half::{bf16, f16};
use ringfold_reduce::{F8E4M3, F8E5M2, Form, Kernel, Operand, scale, scale_fits};
use ringfold_types::{DataType, ReduceOp};

/// Applies `op` to two elements, given as bits.
fn pair<const N: usize>(data_type: DataType, op: ReduceOp, a: [u8; N], b: [u8; N]) -> [u8; N] {
    let mut dst = a;
    let operands = [Operand::Destination, Operand::elements(&b)];
    Kernel::scalar(data_type, op, 3).combine(&mut dst, Form::Element, &operands);
    dst
}

/// Converts one value from one form to the other.
fn convert<const N: usize>(data_type: DataType, src: Operand<'_>, form: Form) -> [u8; N] {
    let mut dst = [0; N];
    Kernel::scalar(data_type, ReduceOp::Sum, 1).combine(&mut dst, form, &[src]);
    dst
}

fn widen(data_type: DataType, bytes: &[u8]) -> f32 {
    f32::from_le_bytes(convert(data_type, Operand::elements(bytes), Form::Accumulator))
}

fn same(ours: f32, theirs: f32) -> bool {
    ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
}

/// Values around every rounding boundary of a type with the values `halves`: each value, the
/// midpoint to the next one, and the neighbours of both.
fn around(values: impl Iterator<Item = f32>) -> Vec<f32> {
    let mut sorted: Vec<f32> = values.filter(|x| x.is_finite()).collect();
    sorted.sort_by(f32::total_cmp);
    sorted.extend([f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, f32::NAN, -f32::NAN]);
    let middles: Vec<f32> = sorted.windows(2).map(|w| w[0] / 2.0 + w[1] / 2.0).collect();
    sorted.extend(middles);
    sorted.iter().flat_map(|x| [x.next_down(), *x, x.next_up()]).collect()
}

#[test]
fn half_floats_widen_and_narrow_as_the_half_crate_does() {
    for code in 0..=u16::MAX {
        let bytes = code.to_le_bytes();
        assert!(same(widen(DataType::F16, &bytes), f16::from_bits(code).to_f32()), "{code:#x}");
        assert!(same(widen(DataType::Bf16, &bytes), bf16::from_bits(code).to_f32()), "{code:#x}");
    }
    for x in around((0..=u16::MAX).map(|code| f16::from_bits(code).to_f32())) {
        let src = x.to_le_bytes();
        let ours = convert(DataType::F16, Operand::accumulators(&src), Form::Element);
        let expected = if x.is_nan() { 0x7e00 } else { f16::from_f32_const(x).to_bits() };
        assert_eq!(u16::from_le_bytes(ours), expected, "{x:e}");
    }
    for x in around((0..=u16::MAX).map(|code| bf16::from_bits(code).to_f32())) {
        let src = x.to_le_bytes();
        let ours = convert(DataType::Bf16, Operand::accumulators(&src), Form::Element);
        let expected = if x.is_nan() { 0x7fc0 } else { bf16::from_f32(x).to_bits() };
        assert_eq!(u16::from_le_bytes(ours), expected, "{x:e}");
    }
}

/// The value of an 8-bit float by its definition, in `f64`.
fn defined(code: u8, mantissa_bits: u32, bias: i32) -> f64 {
    let exponent = i32::from((code & 0x7f) >> mantissa_bits);
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let magnitude = if exponent == 0 {
        mantissa * 2f64.powi(1 - bias)
    } else {
        (1.0 + mantissa) * 2f64.powi(exponent - bias)
    };
    if code >= 0x80 { -magnitude } else { magnitude }
}

/// Checks a type with the finite codes `0..=largest` and the same codes with a sign.
fn check_float8(
    (largest, mantissa_bits, bias): (u8, u32, i32),
    to_f32: impl Fn(u8) -> f32,
    from_f32: impl Fn(f32) -> u8,
) {
    let finite: Vec<u8> = (0..=largest).chain(0x80..=0x80 | largest).collect();
    for &code in &finite {
        assert_eq!(f64::from(to_f32(code)), defined(code, mantissa_bits, bias), "{code:#x}");
        assert_eq!(from_f32(to_f32(code)), code);
    }
    let probes = around(finite.iter().map(|&code| to_f32(code)));
    // Beyond that, `f64` cannot distinguish distances.
    for x in probes.into_iter().filter(|x| x.abs() < 2f32.powi(30)) {
        let distance = |code: u8| (defined(code, mantissa_bits, bias) - f64::from(x)).abs();
        let signed = finite.iter().filter(|&&code| (code >= 0x80) == x.is_sign_negative());
        let nearest = signed
            .min_by(|&&a, &&b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        assert_eq!(Some(&from_f32(x)), nearest, "{x:e}");
    }
    assert_eq!((from_f32(f32::MAX), from_f32(f32::MIN)), (largest, 0x80 | largest));
    assert_eq!(from_f32(f32::NAN), 0x7f);
    assert_eq!(from_f32(-f32::NAN), 0x7f);
}

#[test]
fn float8_is_what_its_definition_says() {
    let e4m3 = |code| F8E4M3::from_bits(code).to_f32();
    check_float8((0x7e, 3, 7), e4m3, |x| F8E4M3::from_f32(x).to_bits());
    assert_eq!(F8E4M3::MAX.to_f32(), 448.0);
    assert_eq!(F8E4M3::from_f32(f32::NEG_INFINITY).to_f32(), -448.0);
    assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());

    let e5m2 = |code| F8E5M2::from_bits(code).to_f32();
    check_float8((0x7b, 2, 15), e5m2, |x| F8E5M2::from_f32(x).to_bits());
    assert_eq!(F8E5M2::MAX.to_f32(), 57344.0);
    assert_eq!(F8E5M2::from_f32(f32::NEG_INFINITY).to_bits(), 0xfc);
    assert_eq!(e5m2(0x7c), f32::INFINITY);
    assert!((0x7d..=0x7f).all(|code| e5m2(code).is_nan()));
    assert!(F8E5M2::NAN != F8E5M2::NAN && F8E5M2::default() < F8E5M2::MAX);
    assert_eq!(format!("{} {:?}", F8E5M2::MAX, F8E4M3::from_f32(0.5)), "57344 0.5");
}

/// Sums and products of two short floats are exact in `f64`, so one rounding to the type gives the
/// reference. The rounding uses the type's own narrowing, which the tests above have checked.
#[test]
fn two_float8_operands_are_rounded_once() {
    for (a, b) in (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))) {
        let (x, y) = (F8E4M3::from_bits(a).to_f32(), F8E4M3::from_bits(b).to_f32());
        #[expect(clippy::cast_possible_truncation, reason = "exact: 8-bit floats span 18 bits")]
        let exact = |x: f64| F8E4M3::from_f32(x as f32).to_bits();
        let of = |op| pair(DataType::F8E4M3, op, [a], [b])[0];
        assert_eq!(of(ReduceOp::Sum), exact(f64::from(x) + f64::from(y)));
        assert_eq!(of(ReduceOp::Prod), exact(f64::from(x) * f64::from(y)));
        let ordered = if x.is_nan() || y.is_nan() { [0x7f; 2] } else { sorted(x, y).map(e4m3) };
        assert_eq!([of(ReduceOp::Min), of(ReduceOp::Max)], ordered, "{x} {y}");
    }
}

fn sorted(x: f32, y: f32) -> [f32; 2] {
    if x.total_cmp(&y).is_le() { [x, y] } else { [y, x] }
}

fn e4m3(x: f32) -> u8 {
    F8E4M3::from_f32(x).to_bits()
}

#[test]
fn integers_wrap_and_truncate() {
    for (a, b) in (i8::MIN..=i8::MAX).flat_map(|a| (i8::MIN..=i8::MAX).map(move |b| (a, b))) {
        let of = |op| pair(DataType::I8, op, a.to_le_bytes(), b.to_le_bytes());
        let sum = a.wrapping_add(b);
        assert_eq!(of(ReduceOp::Sum), sum.to_le_bytes());
        assert_eq!(of(ReduceOp::Prod), a.wrapping_mul(b).to_le_bytes());
        assert_eq!(of(ReduceOp::Min), a.min(b).to_le_bytes());
        assert_eq!(of(ReduceOp::Max), a.max(b).to_le_bytes());
        assert_eq!(of(ReduceOp::Avg), (sum / 3).to_le_bytes());
    }
    let mut dst = [0x80, 0x7f];
    Kernel::scalar(DataType::I8, ReduceOp::Avg, 128).combine(
        &mut dst,
        Form::Element,
        &[Operand::Destination],
    );
    assert_eq!(dst, [0xff, 0]);
}

#[test]
fn the_largest_communicator_has_an_average() {
    let ranks = ringfold_types::limits::RANKS_MAX;
    let sum = 3_u64 * ranks as u64 + 1;
    for (data_type, sum, average) in [
        (DataType::U64, sum.to_le_bytes().to_vec(), 3_u64.to_le_bytes().to_vec()),
        (DataType::F32, 98_304_f32.to_le_bytes().to_vec(), 1.5_f32.to_le_bytes().to_vec()),
        (DataType::F64, 98_304_f64.to_le_bytes().to_vec(), 1.5_f64.to_le_bytes().to_vec()),
        (DataType::I32, (-98_304_i32).to_le_bytes().to_vec(), (-1_i32).to_le_bytes().to_vec()),
    ] {
        for kernel in [Kernel::new, Kernel::scalar] {
            let kernel = kernel(data_type, ReduceOp::Avg, ranks);
            // Many elements, so vector registers take part.
            let sums = sum.repeat(70);
            let mut result = vec![0; sums.len()];
            kernel.combine(&mut result, Form::Element, &[Operand::elements(&sums)]);
            assert_eq!(result, average.repeat(70), "{data_type}");
        }
    }
}

#[test]
fn wide_floats_follow_the_rules() {
    let of = |op, a: f32, b: f32| {
        f32::from_le_bytes(pair(DataType::F32, op, a.to_le_bytes(), b.to_le_bytes()))
    };
    assert_eq!(of(ReduceOp::Sum, 1.5, 2.25), 3.75);
    assert_eq!(of(ReduceOp::Avg, 1.5, 3.0), 1.5);
    for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
        assert!(of(ReduceOp::Min, a, b).is_sign_negative());
        assert!(of(ReduceOp::Max, a, b).is_sign_positive());
    }
    for (a, b) in [(f32::NAN, 1.0), (1.0, -f32::NAN), (f32::from_bits(0x7f80_0001), 1.0)] {
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg] {
            assert_eq!(of(op, a, b).to_bits(), 0x7fc0_0000);
        }
    }
    assert_eq!(of(ReduceOp::Sum, f32::INFINITY, f32::NEG_INFINITY).to_bits(), 0x7fc0_0000);
    let tiny = f32::from_bits(1);
    assert_eq!(of(ReduceOp::Sum, tiny, tiny).to_bits(), 2);
}

#[test]
fn many_operands_are_rounded_once() {
    // 2048 + 1 is 2048 in f16: a rounding after every operand would lose all the ones.
    let (large, one) = (f16::from_f32(2048.0).to_le_bytes(), f16::ONE.to_le_bytes());
    let operands: Vec<_> =
        std::iter::once(&large).chain([&one; 15]).map(|b| Operand::elements(b)).collect();
    let mut dst = [0; 2];
    Kernel::scalar(DataType::F16, ReduceOp::Sum, 16).combine(&mut dst, Form::Element, &operands);
    assert_eq!(f16::from_le_bytes(dst).to_f32(), 2064.0);
}

#[test]
fn scaling_multiplies_and_rounds() {
    let mut dst = [0u8; 4];
    scale(DataType::F32, &mut dst, Some(&3f32.to_le_bytes()), 0.5);
    assert_eq!(f32::from_le_bytes(dst), 1.5);
    let mut bytes = 100i8.to_le_bytes();
    scale(DataType::I8, &mut bytes, None, 3.0);
    assert_eq!(i8::from_le_bytes(bytes), 44);
    let mut bytes = f16::from_f32(3.0).to_le_bytes();
    scale(DataType::F16, &mut bytes, None, 0.1);
    assert_eq!(f16::from_le_bytes(bytes), f16::from_f32(3.0 * 0.1f32));
}

#[test]
fn factors_fit_where_they_keep_their_value() {
    assert!(scale_fits(DataType::I8, -128.0) && !scale_fits(DataType::I8, 128.0));
    assert!(!scale_fits(DataType::U8, -1.0) && !scale_fits(DataType::U8, 0.5));
    let above = 2f64.powi(64);
    assert!(!scale_fits(DataType::U64, above) && scale_fits(DataType::U64, above.next_down()));
    assert!(!scale_fits(DataType::I64, f64::NAN) && !scale_fits(DataType::I32, f64::INFINITY));
    assert!(scale_fits(DataType::F16, 0.1) && !scale_fits(DataType::F16, 1e300));
    assert!(scale_fits(DataType::F64, 1e300) && scale_fits(DataType::F32, f64::NAN));
}

#[test]
#[should_panic(expected = "an operand of 3 bytes, as Element, for 1 values of f32")]
fn operands_must_match_the_destination() {
    Kernel::new(DataType::F32, ReduceOp::Sum, 2).combine(
        &mut [0; 4],
        Form::Element,
        &[Operand::elements(&[0; 3])],
    );
}

/// The result of a bitwise or logical operation on two integers.
fn bits(op: ReduceOp, a: u64, b: u64) -> u64 {
    match op {
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        ReduceOp::LogicalAnd => u64::from(a != 0 && b != 0),
        ReduceOp::LogicalOr => u64::from(a != 0 || b != 0),
        ReduceOp::LogicalXor => u64::from((a != 0) != (b != 0)),
        other => unreachable!("{other} is neither"),
    }
}

#[test]
fn bits_of_integers_are_combined() {
    const OPS: [ReduceOp; 6] = [
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
        ReduceOp::LogicalAnd,
        ReduceOp::LogicalOr,
        ReduceOp::LogicalXor,
    ];
    for (a, b) in (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).map(move |b| (a, b))) {
        for op in OPS {
            let [wanted, ..] = bits(op, a.into(), b.into()).to_le_bytes();
            assert_eq!(pair(DataType::U8, op, [a], [b]), [wanted], "{op} {a} {b}");
            assert_eq!(pair(DataType::I8, op, [a], [b]), [wanted], "{op} {a} {b}");
        }
    }
    let wide = [0, 1, 1 << 63, u64::MAX, 0x0123_4567_89ab_cdef, 0xff00_ff00_0000_0000];
    for (a, b) in wide.into_iter().flat_map(|a| wide.map(|b| (a, b))) {
        for op in OPS {
            let (left, right) = (a.to_le_bytes(), b.to_le_bytes());
            for data_type in [DataType::U64, DataType::I64] {
                let wanted = bits(op, a, b).to_le_bytes();
                assert_eq!(pair(data_type, op, left, right), wanted, "{op} {a:x} {b:x}");
            }
            let half = |bytes: [u8; 8]| [bytes[0], bytes[1], bytes[2], bytes[3]];
            let (a, b) = (a & 0xffff_ffff, b & 0xffff_ffff);
            for data_type in [DataType::U32, DataType::I32] {
                let wanted = half(bits(op, a, b).to_le_bytes());
                assert_eq!(
                    pair(data_type, op, half(left), half(right)),
                    wanted,
                    "{op} {a:x} {b:x}"
                );
            }
        }
    }
}

/// The best kernel of this CPU gives the bits of the plain loop for many values and operands.
#[test]
fn long_operands_combine_bit_by_bit() {
    for op in [ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor, ReduceOp::LogicalXor] {
        let value = |operand: u64, at: u64| (operand * 0x9e37 + at * 77) % 5 * (at % 3 + 1);
        let operands: Vec<Vec<u8>> = (0..5_u64)
            .map(|operand| (0..1001).flat_map(|at| value(operand, at).to_le_bytes()).collect())
            .collect();
        let sources: Vec<_> = operands.iter().map(|bytes| Operand::elements(bytes)).collect();
        let mut dst = vec![0; 8 * 1001];
        Kernel::new(DataType::U64, op, 5).combine(&mut dst, Form::Element, &sources);
        for (at, got) in (0..1001_u64).zip(dst.chunks_exact(8)) {
            let wanted =
                (1..5).fold(value(0, at), |left, operand| bits(op, left, value(operand, at)));
            assert_eq!(got, wanted.to_le_bytes(), "{op} of element {at}");
        }
    }
}
