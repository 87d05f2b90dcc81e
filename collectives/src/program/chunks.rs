//! Chunks of a lane that a provider combines, with the members' own operations beside them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ringfold_types::Slice;

use super::{Op, overlap};

use crate::schedule::{Relayed, Schedule, Source, Step};

/// The chunks of one lane that are handed over and not taken.
pub(super) struct Chunks<'s> {
    schedule: &'s Schedule,
    overlay: Option<isize>,
    relayed: &'s [Relayed],
    window: usize,
    /// The number of the next chunk.
    next: usize,
    /// The numbers and results of those chunks, oldest first.
    pending: VecDeque<(usize, Slice)>,
}

impl<'s> Chunks<'s> {
    pub(super) fn new(schedule: &'s Schedule, overlay: Option<isize>, lane: usize) -> Self {
        Self {
            schedule,
            overlay,
            relayed: schedule.relayed(lane),
            window: schedule.group(lane).map_or(1, |group| group.window),
            next: 0,
            pending: VecDeque::new(),
        }
    }

    /// Takes the results that a step uses, and all before them.
    pub(super) fn take_before(&mut self, step: &Step, op: impl Fn(&Step) -> Op, ops: &mut Vec<Op>) {
        let used = |(_, dst): &(usize, Slice)| self.uses(step, *dst);
        let last = self.pending.iter().rposition(used);
        (0..last.map_or(0, |last| last + 1)).for_each(|_| self.take(&op, ops));
    }

    /// Hands over the next chunk, once the window has room for it.
    pub(super) fn post(
        &mut self,
        src: Slice,
        dst: Slice,
        op: impl Fn(&Step) -> Op,
        ops: &mut Vec<Op>,
    ) {
        if self.pending.len() == self.window {
            self.take(&op, ops);
        }
        let begun = &self.relayed[self.next].begun;
        ops.push(Op::Post { chunk: short(self.next), src, dst, ops: short(begun.len()) });
        ops.extend(begun.iter().map(&op));
        self.pending.push_back((self.next, dst));
        self.next += 1;
    }

    pub(super) fn take_all(&mut self, op: impl Fn(&Step) -> Op, ops: &mut Vec<Op>) {
        while !self.pending.is_empty() {
            self.take(&op, ops);
        }
    }

    fn take(&mut self, op: impl Fn(&Step) -> Op, ops: &mut Vec<Op>) {
        let Some((chunk, dst)) = self.pending.pop_front() else { return };
        let ended = &self.relayed[chunk].ended;
        ops.push(Op::Take { chunk: short(chunk), dst, ops: short(ended.len()) });
        ops.extend(ended.iter().map(op));
    }

    /// Whether a step reads or writes elements of `dst`.
    fn uses(&self, step: &Step, dst: Slice) -> bool {
        let meets = |slice: Slice| dst.len > 0 && overlap(self.overlay, slice, dst);
        match *step {
            Step::Send { src, .. } | Step::Put { src, .. } => meets(src),
            Step::Recv { dst, .. } => meets(dst),
            Step::Copy { src, dst } | Step::Get { src, dst, .. } | Step::Offload { src, dst } => {
                meets(src) || meets(dst)
            }
            Step::Reduce { dst, ref sources } => {
                let is_used = |source: &Source| match *source {
                    Source::Local(slice) => meets(slice),
                    Source::Wire(..) | Source::Peer(..) => false,
                };
                meets(dst) || self.schedule.sources(sources).iter().any(is_used)
            }
            Step::Signal | Step::Wait { .. } | Step::Swap => false,
        }
    }
}

fn short(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
