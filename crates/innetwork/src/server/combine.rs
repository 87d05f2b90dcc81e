//! Combines the children's parts of a chunk, in the order of the children, where the bytes lie.

use std::iter::once;

use crate::Reduction;
use rayon::ThreadPool;
use rayon::prelude::*;
use ringfold_reduce::{Form, Kernel, Operand};
use ringfold_types::limits::{AGGREGATOR_CHILDREN_MAX, SOURCES_MAX};
use ringfold_types::{DataType, Wire};

/// Values that one kernel call combines where there are more children than its sources. The
/// intermediate values of a block stay in the nearest cache.
const BLOCK_VALUES: usize = 2_048;
/// Values of one task of the thread pool.
const TASK_VALUES: usize = 16 * BLOCK_VALUES;
/// Chunks with fewer bytes are combined by the thread that has received them. To hand them to
/// others takes about as long.
const SHARED_BYTES_MIN: usize = 256 * 1024;

/// Combines the parts of chunks at one aggregator of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Combiner {
    /// Ranks of the communicator, by which an average is divided.
    pub ranks: usize,
    /// Whether results leave from here: final values. Otherwise the parent gets partial results in
    /// the form in which the parts came.
    pub is_top: bool,
}

impl Combiner {
    /// The form of the combined values.
    #[must_use]
    pub const fn form(&self, reduction: &Reduction) -> Form {
        if self.is_top { Form::Element } else { form(reduction.form) }
    }

    /// Writes the combination of the parts to `dst`. Short floats are summed in `f32` and rounded
    /// once. A pool shares the work of a long chunk.
    ///
    /// # Panics
    /// If a part or `dst` has another number of values than the others.
    pub fn combine(
        &self,
        reduction: &Reduction,
        parts: &[&[u8]],
        dst: &mut [u8],
        pool: Option<&ThreadPool>,
    ) {
        let kernel = Kernel::new(reduction.data_type, reduction.op, self.ranks);
        let kernel = if self.is_top { kernel } else { kernel.partial() };
        let job = Job { kernel, from: form(reduction.form), to: self.form(reduction) };
        let data_type = reduction.data_type;
        let (width, part_width) = (job.to.bytes(data_type), job.from.bytes(data_type));
        let task = |(at, dst): (usize, &mut [u8])| {
            let start = at * TASK_VALUES * part_width;
            let bytes = dst.len() / width * part_width;
            let mut here = [&[][..]; AGGREGATOR_CHILDREN_MAX];
            for (here, part) in here.iter_mut().zip(parts) {
                *here = &part[start..start + bytes];
            }
            job.run(data_type, &here[..parts.len()], dst);
        };
        match pool {
            Some(pool) if dst.len() >= SHARED_BYTES_MIN => {
                pool.install(|| dst.par_chunks_mut(TASK_VALUES * width).enumerate().for_each(task));
            }
            _ => dst.chunks_mut(TASK_VALUES * width).enumerate().for_each(task),
        }
    }
}

struct Job {
    kernel: Kernel,
    from: Form,
    to: Form,
}

impl Job {
    fn run(&self, data_type: DataType, parts: &[&[u8]], dst: &mut [u8]) {
        if parts.len() <= SOURCES_MAX {
            let mut operands = [Operand::Destination; SOURCES_MAX];
            for (operand, part) in operands.iter_mut().zip(parts) {
                *operand = Operand::Bytes { bytes: part, form: self.from };
            }
            return self.kernel.combine(dst, self.to, &operands[..parts.len()]);
        }
        let (width, part_width) = (self.to.bytes(data_type), self.from.bytes(data_type));
        let sum_width = Form::Accumulator.bytes(data_type);
        let mut sums = [0_u64; BLOCK_VALUES];
        let sums = as_bytes(&mut sums);
        for (at, dst) in dst.chunks_mut(BLOCK_VALUES * width).enumerate() {
            let count = dst.len() / width;
            let sums = &mut sums[..count * sum_width];
            let start = at * BLOCK_VALUES * part_width;
            let bytes = |part: &usize| &parts[*part][start..start + count * part_width];
            let form = self.from;
            let all: Vec<usize> = (0..parts.len()).collect();
            let (first, rest) = all.split_at(SOURCES_MAX);
            let first: Vec<_> =
                first.iter().map(|at| Operand::Bytes { bytes: bytes(at), form }).collect();
            self.kernel.combine(sums, Form::Accumulator, &first);
            let mut groups = rest.chunks(SOURCES_MAX - 1).peekable();
            while let Some(group) = groups.next() {
                let parts = group.iter().map(|at| Operand::Bytes { bytes: bytes(at), form });
                if groups.peek().is_some() {
                    let operands: Vec<_> = once(Operand::Destination).chain(parts).collect();
                    self.kernel.combine(sums, Form::Accumulator, &operands);
                } else {
                    let operands: Vec<_> = once(Operand::accumulators(sums)).chain(parts).collect();
                    self.kernel.combine(dst, self.to, &operands);
                }
            }
        }
    }
}

fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

const fn form(wire: Wire) -> Form {
    match wire {
        Wire::Element => Form::Element,
        Wire::Accumulator => Form::Accumulator,
    }
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;
    use ringfold_types::{Collective, ReduceOp};

    use super::*;

    /// Bytes that are the same in every run, without values that make all results NaN.
    fn bytes(seed: usize, count: usize) -> Vec<u8> {
        let mut state = seed as u64 * 2 + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33).to_le_bytes()[0] & 0x3b
        };
        (0..count).map(|_| next()).collect()
    }

    fn reduction(data_type: DataType, op: ReduceOp, form: Wire) -> Reduction {
        Reduction { collective: Collective::AllReduce, data_type, op, root: 0, form }
    }

    /// Each type, operation and form, with few and many children, beside the scalar kernel, which
    /// gets one more operand at a time.
    #[test]
    fn parts_are_combined_in_their_order_and_rounded_once() {
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for data_type in DataType::ALL {
            let ops = ReduceOp::PLAIN.into_iter().filter(|op| op.fits(data_type));
            for (op, wire) in ops.flat_map(|op| Wire::ALL.map(|wire| (op, wire))) {
                for (children, is_top) in
                    [(1, true), (3, false), (16, true), (17, true), (64, false)]
                {
                    let reduction = reduction(data_type, op, wire);
                    let count = 3_001;
                    let parts: Vec<_> =
                        (0..children).map(|at| bytes(at, reduction.input_bytes(count))).collect();
                    let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
                    let combiner = Combiner { ranks: children * 2, is_top };
                    let mut made = vec![0; count * combiner.form(&reduction).bytes(data_type)];
                    combiner.combine(&reduction, &parts, &mut made, Some(&pool));
                    let wanted = one_at_a_time(&combiner, &reduction, &parts, count);
                    let what = format!("{data_type} {op} {wire} of {children}");
                    assert!(made == wanted, "{what}, top: {is_top}");
                }
            }
        }
    }

    fn one_at_a_time(
        combiner: &Combiner,
        reduction: &Reduction,
        parts: &[&[u8]],
        count: usize,
    ) -> Vec<u8> {
        let data_type = reduction.data_type;
        let kernel = Kernel::scalar(data_type, reduction.op, combiner.ranks);
        let kernel = if combiner.is_top { kernel } else { kernel.partial() };
        let operand = |bytes| Operand::Bytes { bytes, form: form(reduction.form) };
        let mut sums = vec![0; count * Form::Accumulator.bytes(data_type)];
        kernel.combine(&mut sums, Form::Accumulator, &[operand(parts[0])]);
        for part in &parts[1..] {
            kernel.combine(&mut sums, Form::Accumulator, &[Operand::Destination, operand(part)]);
        }
        let to = combiner.form(reduction);
        let mut dst = vec![0; count * to.bytes(data_type)];
        kernel.combine(&mut dst, to, &[Operand::accumulators(&sums)]);
        dst
    }

    #[test]
    fn a_pool_gives_the_same_bits() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let reduction = reduction(DataType::Bf16, ReduceOp::Sum, Wire::Element);
        let parts: Vec<_> = (0..8).map(|at| bytes(at, 1_000_002)).collect();
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        let combiner = Combiner { ranks: 8, is_top: true };
        let [mut alone, mut shared] = [vec![0; 1_000_002], vec![0; 1_000_002]];
        combiner.combine(&reduction, &parts, &mut alone, None);
        combiner.combine(&reduction, &parts, &mut shared, Some(&pool));
        assert!(alone == shared);
    }
}
