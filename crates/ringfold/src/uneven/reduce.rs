//! The uneven reduce-scatter.

use std::ops::Range;

use ringfold_reduce::{Form, Kernel, Operand, scale};
use ringfold_types::limits::{
    FRAGMENT_ALIGN, LINK_BYTES_MIN, SOURCES_MAX, UNEVEN_ROUND_BYTES, UNEVEN_SCRATCH_BYTES,
};
use ringfold_types::{Rank, ReduceOp, UnevenCall};

use super::check_len;
use crate::buffers::{AlignedBytes, Buffers};
use crate::communicator::Communicator;
use crate::error::{CallError, Error, Operation};
use crate::messages::{Incoming, Outgoing};
use crate::parts::Parts;

/// The bytes of a part in its buffer.
type Bytes = Range<usize>;

impl Communicator {
    /// Reduces each part of all inputs on its rank, in rank order and in rounds of limited length.
    pub(super) fn reduce_parts(
        &mut self,
        call: &UnevenCall,
        parts: Parts<'_>,
        mut buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let whole: &[u8] = match &buffers {
            Buffers::Apart { input, .. } => input,
            Buffers::InPlace(both) => both,
        };
        let refuse = self.refusal(call);
        let ranges = self.ranges(call, parts, whole.len())?;
        let own = &ranges[self.rank().index()];
        match &buffers {
            Buffers::Apart { output, .. } => {
                check_len("output", output, own.len()).map_err(refuse)?;
            }
            Buffers::InPlace(_) if is_overlapped(own, &ranges) => {
                return Err(refuse("the own part of the buffer overlaps others".to_owned()));
            }
            Buffers::InPlace(_) => {}
        }
        let mut memory = std::mem::take(&mut self.packed);
        let mut copy = std::mem::take(&mut self.scaled);
        let scaled = match call.op {
            ReduceOp::PreMulSum(factor) => {
                let scaled = copy.exactly(whole.len());
                scale(call.data_type, scaled, Some(whole), factor.factor());
                Some(&*scaled)
            }
            _ => None,
        };
        let kernel = Kernel::new(call.data_type, call.op, self.size());
        let mut sums = Vec::new();
        let mut combine_all = |output: &mut [u8], contributions: &[u8]| {
            let parts = contributions.chunks_exact(output.len());
            let operands: Vec<_> = parts.map(Operand::elements).collect();
            combine(&kernel, output, &mut sums, &operands);
            Ok(())
        };
        let outcome = self.perform_rounds(call, |it, tag| {
            let input = (&mut buffers, scaled);
            it.reduce_rounds(
                (call, tag),
                &ranges,
                input,
                (&mut memory, FRAGMENT_ALIGN),
                &mut combine_all,
            )
        });
        (self.packed, self.scaled) = (memory, copy);
        outcome
    }

    /// Performs a reduction in rounds whose bytes are multiples of `unit`. `combine` writes the
    /// combination of all contributions, which follow each other in rank order, to their place.
    pub(super) fn reduce_rounds(
        &mut self,
        (call, tag): (&UnevenCall, u32),
        ranges: &[Bytes],
        (buffers, scaled): (&mut Buffers<'_>, Option<&[u8]>),
        (memory, unit): (&mut AlignedBytes, usize),
        mut combine: impl FnMut(&mut [u8], &[u8]) -> Result<(), CallError>,
    ) -> Result<(), Error> {
        let (own, size) = (self.rank().index(), self.size());
        let most = (UNEVEN_SCRATCH_BYTES / size).clamp(LINK_BYTES_MIN, UNEVEN_ROUND_BYTES);
        let most = most / unit * unit;
        let longest = ranges.iter().map(Bytes::len).max().unwrap_or(0);
        // The rounds of a part that is shorter are empty.
        for begin in (0..longest).step_by(most) {
            let of_round = |range: &Bytes| {
                let end = range.len().min(begin + most);
                range.start + begin.min(end)..range.start + end
            };
            let bytes = of_round(&ranges[own]).len();
            let contributions = memory.exactly(size * bytes);
            let input: &[u8] = match (&*buffers, scaled) {
                (_, Some(scaled)) => scaled,
                (Buffers::Apart { input, .. }, None) => input,
                (Buffers::InPlace(both), None) => both,
            };
            let sent = ranges.iter().map(of_round).enumerate().filter(|(_, part)| !part.is_empty());
            let mut outgoing: Vec<_> =
                sent.map(|(to, part)| Outgoing::new(&input[part], Rank::at(to), 0)).collect();
            let mut incoming = Vec::new();
            if bytes > 0 {
                let received = contributions.chunks_exact_mut(bytes).enumerate();
                incoming.extend(received.map(|(from, it)| Incoming::new(it, Rank::at(from), 0)));
            }
            self.round(call, tag, &mut outgoing, &mut incoming)?;
            if bytes == 0 {
                continue;
            }
            let output = match buffers {
                Buffers::Apart { output, .. } => &mut output[begin..begin + bytes],
                Buffers::InPlace(both) => &mut both[of_round(&ranges[own])],
            };
            if let Err(error) = combine(output, contributions) {
                let operation = Operation::Uneven { call: *call, seq: self.seq() };
                return Err(self.fail_in(operation, error));
            }
        }
        Ok(())
    }
}

/// Writes the combination of the operands to `output`, in their order. `sums` is memory for
/// accumulators, which more operands than a kernel combines at once need.
fn combine(kernel: &Kernel, output: &mut [u8], sums: &mut Vec<u8>, operands: &[Operand<'_>]) {
    let (mut rest, mut has_sums) = (operands, false);
    if rest.len() > SOURCES_MAX {
        let data_type = kernel.data_type();
        sums.resize(output.len() / data_type.bytes() * Form::Accumulator.bytes(data_type), 0);
    }
    while rest.len() + usize::from(has_sums) > SOURCES_MAX {
        let (front, back) = rest.split_at(SOURCES_MAX - usize::from(has_sums));
        if has_sums {
            let mut operands = vec![Operand::Destination];
            operands.extend_from_slice(front);
            kernel.combine(sums, Form::Accumulator, &operands);
        } else {
            kernel.combine(sums, Form::Accumulator, front);
        }
        (rest, has_sums) = (back, true);
    }
    if has_sums {
        let mut operands = vec![Operand::accumulators(sums)];
        operands.extend_from_slice(rest);
        kernel.combine(output, Form::Element, &operands);
    } else {
        kernel.combine(output, Form::Element, rest);
    }
}

/// Whether a part other than `own` shares bytes with it.
fn is_overlapped(own: &Bytes, ranges: &[Bytes]) -> bool {
    let shares = |it: &&Bytes| !it.is_empty() && it.start < own.end && own.start < it.end;
    !own.is_empty() && ranges.iter().filter(shares).count() > 1
}
