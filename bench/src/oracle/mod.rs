//! Inputs and exact expected outputs of calls, for every type and operation.
//!
//! Inputs are small integers, and every partial sum is exact in the type itself. So every order of
//! combination gives the same result, even if partial sums are rounded at each hop. Calls whose
//! partial sums stay accumulators (`Wire::Accumulator`) get larger inputs: their sums are rounded
//! once, which has one right answer too.
//! Inputs repeat with a prime period. Filling and comparing thus run at the speed of memory, and a
//! misplaced block shows unless its distance is a multiple of the period.
//!
//! The oracle shares no code with the algorithms or the kernels: it computes with `i64` and `f64`,
//! and `encode` encodes floats bit by bit. The idea of exactly predictable inputs is from
//! nccl-tests' `verifiable`.

mod encode;

use ringfold::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use encode::{Number, encode, wrap};

/// The period of inputs, in elements.
pub const PERIOD: usize = 4099;

/// The inputs and outputs of one call on all ranks. A seed distinguishes them from other calls'.
#[derive(Clone, Copy, Debug)]
pub struct Oracle {
    call: Call,
    size: usize,
    seed: u64,
}

impl Oracle {
    /// Returns the oracle for `call` among `size` ranks. Another `seed` gives other inputs.
    #[must_use]
    pub const fn new(call: Call, size: usize, seed: u64) -> Self {
        Self { call, size, seed }
    }

    /// Returns the operation for `rank`. For a `PreMulSum` each rank has its own scale.
    #[must_use]
    pub const fn op(&self, rank: Rank) -> ReduceOp {
        match self.call.op {
            ReduceOp::PreMulSum(_) => ReduceOp::pre_mul_sum(Self::factor(rank.index()) as f64),
            op => op,
        }
    }

    /// Fills the input buffer of `rank`.
    pub fn fill_input(&self, rank: Rank, input: &mut [u8]) {
        repeat(&self.raw(rank.index()), input);
    }

    /// Counts the wrong elements in the output buffer of `rank`. Returns 0 for a rank without a
    /// defined output.
    #[must_use]
    pub fn count_wrong(&self, rank: Rank, output: &[u8]) -> usize {
        let Call { collective, count, root, data_type, .. } = self.call;
        let block_bytes = count * data_type.bytes();
        match collective {
            _ if output.is_empty() => 0,
            Collective::Barrier => 0,
            Collective::Reduce | Collective::Gather if rank != root => 0,
            Collective::Exscan if rank == Rank(0) => 0,
            Collective::AllReduce | Collective::Reduce => self.differ(&self.reduced(), 0, output),
            Collective::Scan => self.differ(&self.reduced_to(rank.index() + 1), 0, output),
            Collective::Exscan => self.differ(&self.reduced_to(rank.index()), 0, output),
            Collective::ReduceScatter => self.differ(&self.reduced(), rank.index() * count, output),
            Collective::Scatter => {
                self.differ(&self.raw(root.index()), rank.index() * count, output)
            }
            Collective::AllToAll => output
                .chunks(block_bytes)
                .enumerate()
                .map(|(from, block)| self.differ(&self.raw(from), rank.index() * count, block))
                .sum(),
            Collective::Broadcast => self.differ(&self.raw(root.index()), 0, output),
            Collective::AllGather | Collective::Gather => output
                .chunks(block_bytes)
                .enumerate()
                .map(|(from, block)| self.differ(&self.raw(from), 0, block))
                .sum(),
        }
    }

    /// Counts the wrong elements of a part that begins at element `first` of the input of rank
    /// `from`, or of the reduction of all inputs if the call is an all-reduce.
    #[must_use]
    pub fn count_wrong_part(&self, from: Rank, first: usize, part: &[u8]) -> usize {
        let is_sum = self.call.collective == Collective::AllReduce;
        let table = if is_sum { self.reduced() } else { self.raw(from.index()) };
        self.differ(&table, first, part)
    }

    fn raw(&self, rank: usize) -> Vec<u8> {
        self.table(|phase| self.encode(self.value(rank, phase)))
    }

    fn reduced(&self) -> Vec<u8> {
        self.reduced_to(self.size)
    }

    /// Returns the reduction of the inputs of the first `ranks` ranks.
    fn reduced_to(&self, ranks: usize) -> Vec<u8> {
        self.table(|phase| self.reduction((0..ranks).map(|rank| self.value(rank, phase)), ranks))
    }

    /// Returns one period of elements, or all elements of a shorter call.
    fn table(&self, element: impl Fn(usize) -> Number) -> Vec<u8> {
        let (input, output) = (self.call.input_len(self.size), self.call.output_len(self.size));
        let bytes = self.call.data_type.bytes();
        let elements = PERIOD.min(input.max(output));
        let mut table = Vec::with_capacity(elements * bytes);
        for phase in 0..elements {
            table.extend_from_slice(&element(phase)[..bytes]);
        }
        table
    }

    fn differ(&self, table: &[u8], first: usize, got: &[u8]) -> usize {
        if got.is_empty() {
            return 0;
        }
        let bytes = self.call.data_type.bytes();
        let mut wrong = 0;
        let mut at = first * bytes % table.len();
        let mut rest = got;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(table.len() - at));
            let wanted = &table[at..at + part.len()];
            if part != wanted {
                let pairs = part.chunks(bytes).zip(wanted.chunks(bytes));
                wrong += pairs.filter(|(got, wanted)| got != wanted).count();
            }
            (rest, at) = (after, 0);
        }
        wrong
    }

    /// Returns the input of `rank` at `phase`. Values are small enough for exact results, and
    /// varied enough to show wrong ones.
    fn value(&self, rank: usize, phase: usize) -> i64 {
        let random = mix(self.seed ^ mix(rank as u64) ^ (phase as u64) << 32);
        let pick = |choices: u64| i64::try_from(random % choices).unwrap_or(0);
        let signed = !matches!(self.call.data_type, DataType::U8 | DataType::U32 | DataType::U64);
        match self.call.op {
            // At most six factors of 2: 64 is exact in every type.
            ReduceOp::Prod => 1 + i64::from((rank + phase) % self.size.max(6) < 6 && pick(2) == 1),
            // Sums stay below the largest number of every type, which is 448 for f8e4m3.
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_)
                if self.call.has_wire() && self.call.wire == Wire::Accumulator =>
            {
                let most = (400 / (2 * self.size.max(1))).clamp(1, 7) as u64;
                pick(most + 1)
            }
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_)
                if self.call.collective.reduces() && self.call.data_type.bytes() < 4 =>
            {
                let (most, ranks) = (self.sum_max(), self.size.max(1) as u64);
                // With many ranks only some of them, others at each phase, give more than 0.
                let turn = self.seed.wrapping_add((rank + phase) as u64) % ranks;
                if turn < most { pick((most / ranks).clamp(1, 7) + 1) } else { 0 }
            }
            _ if signed => pick(16) - 8,
            _ => pick(16),
        }
    }

    /// Returns the largest sum of inputs. The type has all integers up to twice that, because
    /// `PreMulSum` doubles inputs.
    const fn sum_max(&self) -> u64 {
        match self.call.data_type {
            DataType::F8E5M2 => 4,
            DataType::F8E4M3 => 8,
            DataType::I8 | DataType::U8 => 63,
            DataType::Bf16 => 128,
            _ => 1024,
        }
    }

    fn reduction(&self, mut values: impl Iterator<Item = i64>, ranks: usize) -> Number {
        let total = match self.call.op {
            ReduceOp::Sum | ReduceOp::Avg => values.sum(),
            ReduceOp::PreMulSum(_) => {
                values.enumerate().map(|(rank, value)| value * Self::factor(rank)).sum()
            }
            ReduceOp::Prod => values.product(),
            ReduceOp::Min => values.min().unwrap_or(0),
            ReduceOp::Max => values.max().unwrap_or(0),
            ReduceOp::BitAnd => values.fold(-1, |left, right| left & right),
            ReduceOp::BitOr => values.fold(0, |left, right| left | right),
            ReduceOp::BitXor => values.fold(0, |left, right| left ^ right),
            // A single rank keeps its value.
            _ if ranks == 1 => values.sum(),
            ReduceOp::LogicalAnd => i64::from(values.all(|value| value != 0)),
            ReduceOp::LogicalOr => i64::from(values.any(|value| value != 0)),
            ReduceOp::LogicalXor => i64::from(values.fold(false, |odd, value| odd != (value != 0))),
        };
        if self.call.op == ReduceOp::Avg { self.average(total, ranks) } else { self.encode(total) }
    }

    fn average(&self, total: i64, ranks: usize) -> Number {
        let data_type = self.call.data_type;
        match data_type {
            DataType::F64 => encode(data_type, total as f64 / ranks as f64),
            // The quotient is rounded to f32, and then to the type.
            DataType::F16
            | DataType::Bf16
            | DataType::F32
            | DataType::F8E4M3
            | DataType::F8E5M2 => encode(data_type, f64::from(total as f32 / ranks as f32)),
            // The sum wraps in the type, the quotient is truncated.
            _ => {
                let wrapped = wrap(data_type, total);
                self.encode(i64::try_from(ranks).map_or(0, |ranks| wrapped / ranks))
            }
        }
    }

    const fn factor(rank: usize) -> i64 {
        1 + (rank % 2) as i64
    }

    fn encode(&self, value: i64) -> Number {
        encode(self.call.data_type, value as f64)
    }
}

/// Fills `bytes` with repetitions of a table.
fn repeat(table: &[u8], bytes: &mut [u8]) {
    if table.is_empty() {
        return;
    }
    for part in bytes.chunks_mut(table.len()) {
        let len = part.len();
        part.copy_from_slice(&table[..len]);
    }
}

/// Spreads every bit of `word` over all bits of the result (the finalizer of `SplitMix64`).
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle(data_type: DataType, size: usize) -> Oracle {
        let (op, root) = (ReduceOp::pre_mul_sum(1.0), Rank(0));
        let (collective, wire) = (Collective::AllReduce, Wire::Element);
        let call = Call { collective, count: 100, data_type, op, root, wire };
        Oracle::new(call, size, 7)
    }

    #[test]
    fn partial_sums_are_exact() {
        // The least odd integer that each type lacks.
        let lacks = [
            (DataType::F8E5M2, 9),
            (DataType::F8E4M3, 17),
            (DataType::Bf16, 257),
            (DataType::F16, 2049),
            (DataType::I8, 128),
        ];
        for (data_type, lacks) in lacks {
            for size in 1..100 {
                let oracle = oracle(data_type, size);
                for phase in 0..100 {
                    let inputs = (0..size).map(|rank| oracle.value(rank, phase) * 2);
                    assert!(inputs.sum::<i64>() < lacks, "{data_type} among {size}");
                }
            }
        }
    }

    #[test]
    fn every_rank_gives_more_than_zero_somewhere() {
        for data_type in [DataType::F8E5M2, DataType::F8E4M3, DataType::Bf16] {
            let oracle = oracle(data_type, 64);
            for rank in 0..64 {
                assert!(
                    (0..PERIOD).any(|phase| oracle.value(rank, phase) > 0),
                    "{data_type} {rank}"
                );
            }
        }
    }
}
