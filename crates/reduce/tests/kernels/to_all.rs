//! A combination to several destinations gives each of them the result of `combine`: for every
//! type, operation and level, at odd lengths and alignments, with and without non-temporal stores,
//! and with destinations as operands.

use std::ops::Range;

use ringfold_reduce::{Form, Kernel, Level, Operand};
use ringfold_types::{DataType, ReduceOp};

const OPS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Avg];

/// Bytes without a pattern.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        state.to_le_bytes()[7]
    };
    (0..len).map(next).collect()
}

fn check(level: Level, data_type: DataType, op: ReduceOp, count: usize, misaligned: usize) {
    let Some(kernel) = Kernel::with(level, data_type, op, 3) else { return };
    let width = data_type.bytes();
    let (len, at) = (count * width, misaligned * width);
    let inputs: Vec<Vec<u8>> = (0..3).map(|rank| noise(7 + rank, len)).collect();
    let operands: Vec<_> = inputs.iter().map(|input| Operand::elements(input)).collect();
    let mut right = vec![0; len];
    kernel.combine(&mut right, Form::Element, &operands);

    // All buffers have an offset from the start of a line, equal or not; the bytes around them stay
    // unchanged.
    for (in_place, non_temporal, apart) in [
        (false, false, 0),
        (true, false, 0),
        (false, true, 0),
        (true, true, 0),
        (false, true, width),
        (false, true, 1),
    ] {
        let place = |nth: usize| at + if nth == 1 { apart } else { 0 };
        let [mut first, mut own, mut last] = [0, 1, 2].map(|nth| Buffer::new(len, place(nth)));
        for (nth, buffer) in [&mut first, &mut own, &mut last].into_iter().enumerate() {
            let nothing = vec![0x5a; len];
            buffer.inner().copy_from_slice(if in_place { &inputs[nth] } else { &nothing });
        }
        {
            let others = &mut [first.inner(), last.inner()];
            let in_place_operands = [Operand::Other(0), Operand::Destination, Operand::Other(1)];
            let operands = if in_place { &in_place_operands[..] } else { &operands };
            kernel.combine_to_all(own.inner(), others, operands, non_temporal);
        }
        for mut result in [first, own, last] {
            let about = format!("{op} of {data_type} x {count} at {misaligned} by {level}");
            let how = format!("in place {in_place}, non-temporal {non_temporal}, apart {apart}");
            assert!(result.inner() == right, "{about}, {how}");
            result.inner().fill(0xa5);
            assert!(result.all.iter().all(|byte| *byte == 0xa5), "{about}, {how}");
        }
    }
}

/// A buffer among bytes of 0xa5.
struct Buffer {
    all: Vec<u8>,
    range: Range<usize>,
}

impl Buffer {
    /// A buffer that begins `at` bytes after the start of a cache line.
    fn new(len: usize, at: usize) -> Self {
        let all = vec![0xa5; len + at + 128];
        let start = all.as_ptr().align_offset(64) + at;
        Self { all, range: start..start + len }
    }

    fn inner(&mut self) -> &mut [u8] {
        &mut self.all[self.range.clone()]
    }
}

#[test]
fn every_destination_gets_the_same() {
    for level in Level::ALL {
        for data_type in DataType::ALL {
            for op in OPS {
                for (count, misaligned) in [(0, 0), (1, 0), (7, 1), (64, 0), (2500, 3), (4099, 0)] {
                    check(level, data_type, op, count, misaligned);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "destinations differ")]
fn destinations_are_of_one_length() {
    let kernel = Kernel::new(DataType::F32, ReduceOp::Sum, 2);
    kernel.combine_to_all(&mut [0; 8], &mut [&mut [0; 4]], &[Operand::Destination], false);
}

#[test]
#[should_panic(expected = "no such destination")]
fn operands_are_destinations_that_are_there() {
    let kernel = Kernel::new(DataType::F32, ReduceOp::Sum, 2);
    kernel.combine_to_all(&mut [0; 8], &mut [], &[Operand::Other(0)], false);
}

#[test]
#[should_panic(expected = "no other destinations")]
fn one_destination_has_no_others() {
    let kernel = Kernel::new(DataType::F32, ReduceOp::Sum, 2);
    kernel.combine(&mut [0; 8], Form::Element, &[Operand::Other(0)]);
}
