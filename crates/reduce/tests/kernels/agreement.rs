//! Every SIMD level gives the bits of the scalar kernels: for all bit patterns of short types, edge
//! values of the others, and every length, alignment, form and position of the destination.

use crate::inputs;
use proptest::prelude::{ProptestConfig, any, proptest};
use ringfold_harness::Random;
use ringfold_reduce::{Form, Kernel, Level, Line, Operand, scale};
use ringfold_types::{DataType, ReduceOp};

const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

const FORMS: [Form; 2] = [Form::Element, Form::Accumulator];

/// Not a power of two, so averages are rounded.
const RANKS: usize = 7;

/// One call: its operands as bytes (`None` is the destination), and the destination's contents.
struct Case {
    data_type: DataType,
    op: ReduceOp,
    dst_form: Form,
    dst: Vec<u8>,
    operands: Vec<Option<(Vec<u8>, Form)>>,
    /// Offset of all buffers from the start of their allocation, in bytes.
    misaligned: usize,
}

impl Case {
    /// The destination's bytes after the call, with the bytes around it.
    fn result(&self, kernel: &Kernel) -> Vec<u8> {
        let shifted = |bytes: &[u8]| [&vec![0; self.misaligned], bytes].concat();
        let buffers: Vec<_> =
            self.operands.iter().map(|o| o.as_ref().map(|(b, form)| (shifted(b), *form))).collect();
        let operands: Vec<_> = buffers
            .iter()
            .map(|buffer| match buffer {
                None => Operand::Destination,
                Some((bytes, form)) => {
                    Operand::Bytes { bytes: &bytes[self.misaligned..], form: *form }
                }
            })
            .collect();
        let guard = [0xa5; 64];
        let mut dst = [&shifted(&self.dst)[..], &guard].concat();
        let end = self.misaligned + self.dst.len();
        kernel.combine(&mut dst[self.misaligned..end], self.dst_form, &operands);
        assert_eq!(dst[end..], guard, "written behind the destination: {}", self.name());
        dst
    }

    fn check(&self, level: Level) {
        let simd = Kernel::with(level, self.data_type, self.op, RANKS).expect("level was asked");
        let scalar = Kernel::scalar(self.data_type, self.op, RANKS);
        let (ours, truth) = (self.result(&simd), self.result(&scalar));
        if ours != truth {
            let at = ours.iter().zip(&truth).position(|(a, b)| a != b).unwrap_or(0);
            let value = (at - self.misaligned) / self.dst_form.bytes(self.data_type);
            panic!("{level} differs from scalar at value {value}: {}", self.name());
        }
    }

    fn name(&self) -> String {
        let forms: Vec<_> = self.operands.iter().map(|o| o.as_ref().map(|(_, f)| f)).collect();
        let (of, op, bytes) = (self.data_type, self.op, self.dst.len());
        format!("{op} of {of}, {bytes} bytes as {:?}, operands {forms:?}", self.dst_form)
    }
}

/// Two operands of elements, to elements.
fn check_pair(level: Level, data_type: DataType, a: &[u8], b: &[u8]) {
    for op in OPS {
        let dst = a.to_vec();
        let operands = vec![None, Some((b.to_vec(), Form::Element))];
        let dst_form = Form::Element;
        Case { data_type, op, dst_form, dst, operands, misaligned: 0 }.check(level);
    }
}

#[test]
fn all_pairs_of_bytes() {
    let a: Vec<u8> = (0..=255u8).flat_map(|_| 0..=255u8).collect();
    let b: Vec<u8> = (0..=255u8).flat_map(|b| [b; 256]).collect();
    for level in inputs::levels() {
        for data_type in DataType::ALL.into_iter().filter(|t| t.bytes() == 1) {
            check_pair(level, data_type, &a, &b);
        }
    }
}

#[test]
fn all_patterns_of_16_bits() {
    let a: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for level in inputs::levels() {
        for data_type in [DataType::F16, DataType::Bf16] {
            // Odd factors permute the patterns; edges meet all of them.
            for factor in [1u16, 3, 0x4001, 0x9e37, 0xffff] {
                let permuted = (0..=u16::MAX).flat_map(|x| x.wrapping_mul(factor).to_le_bytes());
                check_pair(level, data_type, &a, &permuted.collect::<Vec<_>>());
            }
            for edge in inputs::edges(data_type) {
                check_pair(level, data_type, &a, &edge[..2].repeat(1 << 16));
            }
        }
    }
}

#[test]
fn all_pairs_of_edge_values() {
    for level in inputs::levels() {
        for data_type in DataType::ALL {
            let width = data_type.bytes();
            let edges = inputs::edges(data_type);
            let pairs = edges.iter().flat_map(|a| edges.iter().map(move |b| (a, b)));
            let (a, b): (Vec<_>, Vec<_>) =
                pairs.map(|(a, b)| (a[..width].to_vec(), b[..width].to_vec())).unzip();
            // Repeated often enough that each pair also meets a vector.
            let (a, b) = (a.concat().repeat(8), b.concat().repeat(8));
            check_pair(level, data_type, &a, &b);
        }
    }
}

#[test]
fn accumulators_are_rounded_alike() {
    let mut random = inputs::random("accumulators_are_rounded_alike");
    let short = DataType::ALL.into_iter().filter(|t| t.is_short_float());
    for level in inputs::levels() {
        for data_type in short.clone() {
            // The midpoints between neighbouring values, and their own neighbours.
            let middles = inputs::rounding_boundaries(data_type);
            let near = middles.iter().flat_map(|x| [x.next_down(), *x, x.next_up()]);
            let mut bytes: Vec<u8> = near.flat_map(f32::to_le_bytes).collect();
            bytes.extend((0..1 << 16).flat_map(|_| random.bits().to_le_bytes()));
            let dst = vec![0; bytes.len() / 4 * data_type.bytes()];
            let operands = vec![Some((bytes, Form::Accumulator))];
            let (op, dst_form) = (ReduceOp::Sum, Form::Element);
            Case { data_type, op, dst_form, dst, operands, misaligned: 0 }.check(level);
        }
    }
}

/// A call with operands of random forms and values.
fn random_case(
    random: &mut Random,
    (data_type, op, dst_form): (DataType, ReduceOp, Form),
    count: usize,
    (operands, destination): (usize, Option<usize>),
) -> Case {
    let misaligned = random.below(8);
    let dst = inputs::values(random, data_type, dst_form, count);
    let operands = (0..operands)
        .map(|index| {
            let form = FORMS[random.below(2)];
            (destination != Some(index))
                .then(|| (inputs::values(random, data_type, form, count), form))
        })
        .collect();
    Case { data_type, op, dst_form, dst, operands, misaligned }
}

#[test]
fn every_length_form_and_position_of_the_destination() {
    let mut random = inputs::random("every_length_form_and_position_of_the_destination");
    let lengths = (0..=130).chain([255, 256, 511, 512, 513, 777, 1100]);
    for level in inputs::levels() {
        for (data_type, op) in DataType::ALL.into_iter().flat_map(|t| OPS.map(|op| (t, op))) {
            for (count, dst_form) in lengths.clone().flat_map(|n| FORMS.map(|form| (n, form))) {
                // Five operands and all positions at every length would take a minute.
                let operands = [1, 2, 3, 4, 5, 16][(count + random.below(3)) % 6];
                for destination in (0..operands).map(Some).chain([None]) {
                    let what = (data_type, op, dst_form);
                    random_case(&mut random, what, count, (operands, destination)).check(level);
                }
            }
        }
    }
}

/// Every number of operands with each combination of two forms, at a length that has full blocks,
/// pairs and a rest.
#[test]
fn every_number_of_operands() {
    let mut random = inputs::random("every_number_of_operands");
    for level in inputs::levels() {
        for (data_type, op) in DataType::ALL.into_iter().flat_map(|t| OPS.map(|op| (t, op))) {
            for operands in 1..=16 {
                for dst_form in FORMS {
                    let what = (data_type, op, dst_form);
                    let destination = [None, Some(random.below(operands))][random.below(2)];
                    random_case(&mut random, what, 709, (operands, destination)).check(level);
                }
            }
        }
    }
}

#[test]
fn lines_are_combined_as_slices_are() {
    let mut random = inputs::random("lines_are_combined_as_slices_are");
    for (data_type, op) in DataType::ALL.into_iter().flat_map(|t| OPS.map(|op| (t, op))) {
        let kernel = Kernel::new(data_type, op, RANKS);
        for (count, sources) in (0..=64 / data_type.bytes()).flat_map(|n| [(n, 1), (n, 2), (n, 4)])
        {
            let lines: Vec<_> = (0..sources)
                .map(|_| {
                    let values = inputs::values(&mut random, data_type, Form::Element, count);
                    let mut line = Line([0xa5; 64]);
                    line.0[..values.len()].copy_from_slice(&values);
                    line
                })
                .collect();
            let bytes = count * data_type.bytes();
            let operands: Vec<_> =
                lines.iter().map(|line| Operand::elements(&line.0[..bytes])).collect();
            let (mut ours, mut truth) = (vec![0; bytes], vec![0; bytes]);
            kernel.combine_lines(&mut ours, &lines);
            kernel.combine(&mut truth, Form::Element, &operands);
            assert_eq!(ours, truth, "{op} of {count} {data_type} from {sources} lines");
        }
    }
}

/// The scalar kernel scales single elements, and vectors scale many.
#[test]
fn scaling_is_the_same_in_bulk() {
    let mut random = inputs::random("scaling_is_the_same_in_bulk");
    for data_type in DataType::ALL {
        for factor in [0.1, -3.0, 1e-30, f64::NAN] {
            let src = inputs::values(&mut random, data_type, Form::Element, 2000);
            let mut bulk = vec![0; src.len()];
            scale(data_type, &mut bulk, Some(&src), factor);
            let mut single = src;
            for element in single.chunks_exact_mut(data_type.bytes()) {
                scale(data_type, element, None, factor);
            }
            assert_eq!(bulk, single, "{data_type} by {factor}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn any_bits(
        which in 0..DataType::ALL.len(),
        op in 0..OPS.len(),
        bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        operands in 2usize..=5,
    ) {
        let (data_type, op, dst_form) = (DataType::ALL[which], OPS[op], Form::Element);
        let length = bytes.len() / operands / data_type.bytes() * data_type.bytes();
        let mut parts = bytes.chunks_exact(length.max(1)).map(<[u8]>::to_vec);
        let mut part = || if length == 0 { Vec::new() } else { parts.next().unwrap() };
        let dst = part();
        let others = (1..operands).map(|_| Some((part(), Form::Element)));
        let operands = std::iter::once(None).chain(others).collect();
        let case = Case { data_type, op, dst_form, dst, operands, misaligned: 1 };
        for level in inputs::available() {
            case.check(level);
        }
    }
}
