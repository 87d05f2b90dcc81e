//! What a call promises of every rank's output.

use ringfold_types::{Collective, Rank};

use super::memory::{Ranks, Value};
use super::world::World;
use super::{Flaw, overlay};

impl World<'_> {
    /// Whether the output of a rank is what its call promises.
    pub(super) fn verify(&self, index: usize) -> Result<(), Flaw> {
        let (call, size, rank) = (self.schedules[index].call(), self.nodes.len(), Rank::at(index));
        let node = &self.nodes[index];
        if call.collective == Collective::Barrier {
            let all = node.entered.count() == size;
            return if all { Ok(()) } else { Err(Flaw::Result { rank, index: 0 }) };
        }
        if call.collective == Collective::Reduce && rank != call.root {
            return Ok(());
        }
        let len = call.output_len(size);
        let mut position = 0;
        while position < len {
            let (run, value) = node.output.run_at(position);
            let wrong = Err(Flaw::Result { rank, index: position });
            // In place, what was never written is the input that was there.
            let untouched = Value {
                shift: overlay(&self.schedules[index]),
                from: Ranks::only(index, size),
                finished: false,
            };
            let value = match value {
                Some(value) => value,
                None if self.conditions.in_place => &untouched,
                None => return wrong,
            };
            let all = value.from.count() == size && value.finished;
            let (shift, right, block_end) = match call.collective {
                Collective::AllGather => {
                    let block = position / call.count;
                    let right = value.from == Ranks::only(block, size);
                    (-(block * call.count).cast_signed(), right, (block + 1) * call.count)
                }
                Collective::Broadcast => {
                    (0, value.from == Ranks::only(call.root.index(), size), len)
                }
                Collective::ReduceScatter => ((index * call.count).cast_signed(), all, len),
                _ => (0, all, len),
            };
            if value.shift != shift || !right {
                return wrong;
            }
            position = (position + run).min(block_end);
        }
        Ok(())
    }
}
