//! Chunks of a lane: handed over to a provider, or passed on by the members' own operations.

use ringfold_types::Slice;

use super::{DONE, Lane, Ports, Stepper};
use crate::program::{Op, Program};

/// The chunks of one lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    /// Chunks handed over to the provider.
    posted: u32,
    /// Results taken from it.
    taken: u32,
    /// The first chunk that goes by the members' own operations.
    relayed_from: u32,
    /// The chunks that the lane has handed over in vain, and now passes on.
    again: Option<Again>,
}

/// Chunks that a lane passes on again before it goes on.
#[derive(Clone, Copy, Debug)]
struct Again {
    /// The number of the chunk after the current one.
    next: u32,
    /// The index after the operations of the current chunk.
    end: usize,
    /// The index and progress of the operation at which the lane was.
    at: usize,
    done: usize,
}

impl Chunks {
    /// Without a provider.
    pub(super) const RELAYED: Self = Self { posted: 0, taken: 0, relayed_from: 0, again: None };

    /// With a provider.
    pub(super) const OFFLOADED: Self = Self { relayed_from: u32::MAX, ..Self::RELAYED };
}

impl Stepper {
    /// The chunks that a lane has handed over to its provider, and the results that it has taken.
    #[must_use]
    pub fn chunks(&self, lane: usize) -> (u32, u32) {
        let Chunks { posted, taken, .. } = self.lanes[lane].chunks;
        (posted, taken)
    }

    /// Gives up the provider of a lane. Results before chunk `from` still come from
    /// `Ports::take_result`; later chunks go by the members' own operations. All members of the
    /// group must give it up with the same `from`. It is not below the results that any of them has
    /// taken, nor above the chunks that any of them has handed over.
    ///
    /// # Panics
    /// If `from` is below the results taken or above the chunks handed over, or the lane has given
    /// up its provider before.
    pub fn fall_back(&mut self, program: &Program, lane: usize, from: u32) {
        let state = &mut self.lanes[lane];
        if state.at == DONE {
            return;
        }
        let Chunks { posted, taken, relayed_from, .. } = state.chunks;
        assert!(relayed_from == u32::MAX, "a lane gives up its provider once");
        assert!((taken..=posted).contains(&from), "{taken} taken, {from}, {posted} handed over");
        state.chunks.relayed_from = from;
        if from < posted {
            let again = Again { next: from, end: 0, at: state.at, done: state.done };
            state.pass_on(program.lanes()[lane].as_slice(), again);
        }
    }
}

impl Lane {
    /// Goes to the operations of chunk `again.next`, or back to where the lane was.
    fn pass_on(&mut self, ops: &[Op], again: Again) {
        let mut ops = ops.iter().enumerate();
        let of_chunk = ops.find_map(|(at, op)| match op {
            Op::Post { chunk, ops, .. } if *chunk == again.next => Some((at, *ops)),
            _ => None,
        });
        match of_chunk.filter(|_| again.next < self.chunks.posted) {
            Some((at, ops)) => {
                let end = at + 1 + ops as usize;
                self.chunks.again = Some(Again { next: again.next + 1, end, ..again });
                (self.at, self.done) = (at + 1, 0);
            }
            None => {
                self.chunks.again = None;
                (self.at, self.done) = (again.at, again.done);
            }
        }
    }

    /// Leaves the operations of a chunk that the lane passes on again, if they are done.
    #[inline]
    pub(super) fn leave_again(&mut self, ops: &[Op]) {
        while let Some(again) = self.chunks.again.filter(|again| again.end == self.at) {
            self.pass_on(ops, again);
        }
    }

    pub(super) fn post<P: Ports>(
        &mut self,
        lane: usize,
        (chunk, ops): (u32, u32),
        src: Slice,
        dst: Slice,
        ports: &mut P,
    ) -> Result<bool, P::Error> {
        if chunk >= self.chunks.relayed_from {
            self.at += 1;
            return Ok(true);
        }
        let is_posted = ports.post(lane, src, dst)?;
        if is_posted {
            self.chunks.posted += 1;
            self.at += 1 + ops as usize;
        }
        Ok(is_posted)
    }

    pub(super) fn take<P: Ports>(
        &mut self,
        lane: usize,
        (chunk, ops): (u32, u32),
        dst: Slice,
        ports: &mut P,
    ) -> Result<bool, P::Error> {
        if chunk >= self.chunks.relayed_from {
            self.at += 1;
            return Ok(true);
        }
        let is_taken = ports.take_result(lane, dst)?;
        if is_taken {
            self.chunks.taken += 1;
            self.at += 1 + ops as usize;
        }
        Ok(is_taken)
    }
}
