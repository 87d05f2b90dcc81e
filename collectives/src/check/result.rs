//! The result that a call promises for every rank's output.

use alloc::vec::Vec;

use ringfold_types::{Buffer, Collective, Rank, Slice};

use super::flaw::Flaw;
use super::fold::Fold;
use super::memory::{Ranks, Value};
use super::world::World;
use crate::blocks::Blocks;

impl World<'_> {
    /// Whether the output of a rank is the result that its call promises.
    pub(super) fn verify(&self, index: usize) -> Result<(), Flaw> {
        let (call, size, rank) = (self.schedules[index].call(), self.nodes.len(), Rank::at(index));
        let node = &self.nodes[index];
        if call.collective == Collective::Barrier {
            let all = node.entered.count() == size;
            return if all { Ok(()) } else { Err(Flaw::Result { rank, index: 0 }) };
        }
        let summands = call.summands(rank, size);
        if call.collective.reduces() && summands.is_empty() {
            let (written, _) = node.output.run_at(0);
            let is_untouched = node.output.is_unwritten(0, call.output_len(size));
            let index = if written < call.output_len(size) { written } else { 0 };
            return if is_untouched { Ok(()) } else { Err(Flaw::Result { rank, index }) };
        }
        if let Some(blocks) = self.schedules[index].blocks() {
            return self.verify_blocks(index, blocks);
        }
        let len = call.output_of(rank, size);
        let sum = Ranks::range(summands, size);
        let mut position = 0;
        while position < len {
            let (run, value) = node.output.run_at(position);
            let wrong = Err(Flaw::Result { rank, index: position });
            // In place, an unwritten element is still the input.
            let untouched = Value {
                shift: self.schedules[index].overlay(),
                from: Ranks::only(index, size),
                fold: Fold::input(index),
                finished: false,
            };
            let value = match value {
                Some(value) => value,
                None if self.conditions.in_place => &untouched,
                None => return wrong,
            };
            let all = value.finished && value.from == sum;
            let only = |rank| value.from == Ranks::only(rank, size) && !value.finished;
            let begin = |block: usize| (block * call.count).cast_signed();
            let block = position / call.count;
            let block_end = (block + 1) * call.count;
            let (shift, right, end) = match call.collective {
                Collective::AllGather | Collective::Gather => {
                    (-begin(block), only(block), block_end)
                }
                Collective::AllToAll => (begin(index) - begin(block), only(block), block_end),
                Collective::Broadcast => (0, only(call.root.index()), len),
                Collective::Scatter => (begin(index), only(call.root.index()), len),
                Collective::ReduceScatter => (begin(index), all, len),
                _ => (0, all, len),
            };
            if value.shift != shift || !right {
                return wrong;
            }
            position = (position + run).min(end);
        }
        Ok(())
    }

    /// The same for blocks whose lengths may differ, and whose places in its buffers each rank
    /// chooses. Elements outside of all blocks must be untouched.
    fn verify_blocks(&self, index: usize, blocks: &Blocks) -> Result<(), Flaw> {
        let (schedule, size, rank) = (&self.schedules[index], self.nodes.len(), Rank::at(index));
        let reduces = schedule.call().collective.reduces();
        let mut promised: Vec<(Slice, Value)> = if reduces {
            let shift = blocks.before(rank).cast_signed();
            let (from, fold) = (Ranks::range(0..size, size), Fold::input(index));
            let own = Slice::new(Buffer::Output, 0, blocks.len(rank));
            alloc::vec![(own, Value { shift, from, fold, finished: true })]
        } else {
            let block = |of: usize| {
                let slice = blocks.slice(Buffer::Output, Rank::at(of));
                let (shift, from) = (-slice.offset.cast_signed(), Ranks::only(of, size));
                (slice, Value { shift, from, fold: Fold::input(of), finished: false })
            };
            (0..size).map(block).collect()
        };
        promised.retain(|(slice, _)| slice.len > 0);
        promised.sort_by_key(|(slice, _)| slice.offset);
        let output = &self.nodes[index].output;
        let mut end = 0;
        for (slice, promise) in promised {
            if !output.is_unwritten(end, slice.offset - end) {
                return Err(Flaw::Result { rank, index: end });
            }
            let mut position = slice.offset;
            while position < slice.end() {
                let (run, value) = output.run_at(position);
                // In place, an unwritten block of this rank is still its input.
                let is_input = promise.from == Ranks::only(index, size) && !promise.finished;
                let is_right = match value {
                    Some(value) => {
                        (value.shift, value.finished) == (promise.shift, promise.finished)
                            && value.from == promise.from
                    }
                    None => self.conditions.in_place && is_input,
                };
                if !is_right {
                    return Err(Flaw::Result { rank, index: position });
                }
                position += run;
            }
            end = slice.end();
        }
        if output.is_unwritten(end, usize::MAX / 4) {
            return Ok(());
        }
        Err(Flaw::Result { rank, index: end })
    }

    /// Whether all ranks that promise the same sums have combined their inputs in the same order.
    /// If a call combines nothing, or each result is on one rank only, `verify` has shown it
    /// already.
    pub(super) fn verify_bits(&self) -> Result<(), Flaw> {
        let call = self.schedules[0].call();
        if call.collective != Collective::AllReduce {
            return Ok(());
        }
        let first = &self.nodes[0].output;
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            let mut position = 0;
            while position < call.count {
                let ((run, value), (first_run, first)) =
                    (node.output.run_at(position), first.run_at(position));
                if value.map(|value| value.fold) != first.map(|value| value.fold) {
                    return Err(Flaw::Bits { rank: Rank::at(index), index: position });
                }
                position += run.min(first_run);
            }
        }
        Ok(())
    }
}
