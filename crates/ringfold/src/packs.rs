//! Packs: like collectives of a group of calls, which are performed as one.

use ringfold_bootstrap::CallWindows;
use ringfold_lend::Loan;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use crate::buffers::{AlignedBytes, Buffers, Offsets};

/// Bytes of a collective that is packed with others of its group of calls, in its larger buffer.
const PACKED_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the one call to which such collectives are packed.
const PACK_BYTES_MAX: usize = 256 * 1024;
const _: () = assert!(PACKED_BYTES_MAX <= PACK_BYTES_MAX);

/// The calls in packs, each of which is one call. The same on all ranks.
pub(crate) fn packs(calls: Vec<(Call, Loan)>, size: usize) -> Vec<Vec<(Call, Loan)>> {
    let mut packs: Vec<(usize, Vec<(Call, Loan)>)> = Vec::new();
    for (call, memory) in calls {
        let bytes = packed_bytes(&call, size);
        let is_short = bytes <= PACKED_BYTES_MAX && is_packable(&call);
        let takes = |(filled, pack): &&mut (usize, Vec<(Call, Loan)>)| {
            *filled + bytes <= PACK_BYTES_MAX && is_alike(&pack[0].0, &call)
        };
        match packs.iter_mut().find(takes).filter(|_| is_short) {
            Some((filled, pack)) => {
                *filled += bytes;
                pack.push((call, memory));
            }
            // A pack that is full takes no other call.
            None => {
                let filled = if is_short { bytes } else { PACK_BYTES_MAX + 1 };
                packs.push((filled, vec![(call, memory)]));
            }
        }
    }
    packs.into_iter().map(|(_, pack)| pack).collect()
}

/// Whether calls of this kind can be packed. The scale of a `PreMulSum` may differ between ranks,
/// so such calls do not tell which of them are alike.
fn is_packable(call: &Call) -> bool {
    let collective = call.collective;
    let is_of_blocks = matches!(
        collective,
        Collective::AllReduce
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::Broadcast
            | Collective::Reduce
    );
    is_of_blocks && !(collective.reduces() && matches!(call.op, ReduceOp::PreMulSum(_)))
}

/// Whether two calls differ in their counts only.
fn is_alike(one: &Call, other: &Call) -> bool {
    Call { count: other.count, ..*one } == *other
}

/// The bytes of the larger buffer of `call`.
const fn packed_bytes(call: &Call, size: usize) -> usize {
    let (input, output) = (call.input_len(size), call.output_len(size));
    (if input > output { input } else { output }) * call.data_type.bytes()
}

/// Like calls that are one call, in memory of its own.
pub(crate) struct Pack {
    /// The one call.
    pub(crate) call: Call,
    /// The mark by which ranks compare the lengths of the calls.
    pub(crate) mark: CallWindows,
    calls: Vec<(Call, Loan)>,
    pub(crate) whole: AlignedBytes,
    rank: Rank,
    size: usize,
}

impl Pack {
    /// Makes one call of `calls` in the memory `whole`, to which it copies their inputs: block by
    /// block, and within a block in the order of the calls.
    pub(crate) fn new(
        mut calls: Vec<(Call, Loan)>,
        whole: AlignedBytes,
        (rank, size): (Rank, usize),
    ) -> Self {
        let counts = || calls.iter().map(|(call, _)| call.count);
        let call = Call { count: counts().sum(), ..calls[0].0 };
        let mark = CallWindows::packed(counts());
        let mut whole = whole;
        let bytes = whole.exactly(packed_bytes(&call, size));
        let has_input = call.collective != Collective::Broadcast || rank == call.root;
        let blocks = if call.collective == Collective::ReduceScatter { size } else { 1 };
        let mut rest = &mut bytes[Offsets::in_place(&call, rank).input..];
        for block in 0..if has_input { blocks } else { 0 } {
            for (call, memory) in &mut calls {
                let bytes = call.count * call.data_type.bytes();
                let buffers = Buffers::of_loan(memory);
                let input: &[u8] = match &buffers {
                    Buffers::Apart { input, .. } => input,
                    Buffers::InPlace(both) => &both[Offsets::in_place(call, rank).input..],
                };
                let (part, others) = rest.split_at_mut(bytes);
                part.copy_from_slice(&input[block * bytes..][..bytes]);
                rest = others;
            }
        }
        Self { call, mark, calls, whole, rank, size }
    }

    /// The buffer of the one call, which is in place.
    pub(crate) fn buffers(&mut self) -> Buffers<'_> {
        Buffers::InPlace(self.whole.exactly(packed_bytes(&self.call, self.size)))
    }

    /// Copies the results from the buffer of the one call to the calls' outputs.
    pub(crate) fn scatter(&mut self) {
        let Self { call, calls, whole, rank, size, .. } = self;
        if call.collective == Collective::Reduce && *rank != call.root {
            return;
        }
        let blocks = if call.collective == Collective::AllGather { *size } else { 1 };
        let whole = whole.front(packed_bytes(call, *size));
        let mut rest = &whole[Offsets::in_place(call, *rank).output..];
        for block in 0..blocks {
            for (call, memory) in &mut *calls {
                let bytes = call.count * call.data_type.bytes();
                let mut buffers = Buffers::of_loan(memory);
                let output: &mut [u8] = match &mut buffers {
                    Buffers::Apart { output, .. } => output,
                    Buffers::InPlace(both) => &mut both[Offsets::in_place(call, *rank).output..],
                };
                let (part, others) = rest.split_at(bytes);
                output[block * bytes..][..bytes].copy_from_slice(part);
                rest = others;
            }
        }
    }
}
