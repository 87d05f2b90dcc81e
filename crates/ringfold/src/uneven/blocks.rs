//! The uneven collectives whose counts all ranks know. They run schedules, as even ones do.

use std::ops::Range;

use ringfold_collectives::Blocks;
use ringfold_types::{Call, Collective, Rank, ReduceOp, UnevenCall, Wire};

use super::check_len;
use crate::arguments::check_count;
use crate::buffers::Buffers;
use crate::cache::Table;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::parts::{Parts, split};

/// The bytes of a part in its buffer.
type Bytes = Range<usize>;

impl Communicator {
    /// Gives every rank all parts.
    pub(super) fn all_gather_parts(
        &mut self,
        call: &UnevenCall,
        parts: Parts<'_>,
        mut buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let refuse = self.refusal(call);
        let (Buffers::Apart { output, .. } | Buffers::InPlace(output)) = &mut buffers;
        let ranges = self.ranges(call, parts, output.len())?;
        split(output, &ranges).map_err(&refuse)?;
        if let Buffers::Apart { input, .. } = &buffers {
            check_len("input", input, ranges[self.rank().index()].len()).map_err(refuse)?;
        }
        self.perform_common(call, Collective::AllGather, &ranges, buffers)
    }

    /// Reduces each part of all inputs on its rank.
    pub(super) fn reduce_scatter_parts(
        &mut self,
        call: &UnevenCall,
        parts: Parts<'_>,
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let refuse = self.refusal(call);
        let whole: &[u8] = match &buffers {
            Buffers::Apart { input, .. } => input,
            Buffers::InPlace(both) => both,
        };
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
        self.perform_common(call, Collective::ReduceScatter, &ranges, buffers)
    }

    /// Performs a call whose counts all ranks know, on parts of these bytes.
    fn perform_common(
        &mut self,
        uneven: &UnevenCall,
        collective: Collective,
        ranges: &[Bytes],
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let UnevenCall { data_type, op, .. } = *uneven;
        let element = data_type.bytes();
        let elements = |range: &Bytes| range.start / element..range.end / element;
        let blocks = Blocks::new(ranges.iter().map(elements));
        let count = blocks.longest();
        check_count(count, self.size()).map_err(self.refusal(uneven))?;
        let wire = self.wire();
        let call = Call { collective, count, data_type, op, root: Rank(0), wire };
        let call = Call { wire: if call.has_wire() { wire } else { Wire::default() }, ..call };
        // Calls of every scale share one program.
        let op = if let ReduceOp::PreMulSum(_) = op { ReduceOp::pre_mul_sum(1.0) } else { op };
        let uneven = UnevenCall { op, ..*uneven };
        self.perform_in_blocks(&call, &Table { call: uneven, blocks }, buffers)
    }
}

/// Whether a part other than `own` shares bytes with it.
fn is_overlapped(own: &Bytes, ranges: &[Bytes]) -> bool {
    let shares = |it: &&Bytes| !it.is_empty() && it.start < own.end && own.start < it.end;
    !own.is_empty() && ranges.iter().filter(shares).count() > 1
}
