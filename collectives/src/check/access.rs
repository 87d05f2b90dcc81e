//! Access of ranks to memory: its owner, its bounds, and the other lanes that use it.

use alloc::vec::Vec;

use ringfold_types::limits::{STAGING_BYTES, STAGING_HALF_BYTES};
use ringfold_types::{Buffer, Collective, Rank, Slice};

use super::flaw::Flaw;
use super::fold::Fold;
use super::memory::{Ranks, Run, Value};
use super::races::Race;
use super::world::World;
use crate::blocks::Blocks;

impl World<'_> {
    /// The rank whose memory a slice of `of` really is, as rank `index` sees it: ranks may have
    /// swapped staging buffers.
    fn home(&self, index: usize, of: usize, slice: Slice) -> usize {
        let is_other = slice.buffer == Buffer::Staging && self.shared.swapped[index];
        if is_other { 1 - of } else { of }
    }

    /// Records that a lane of a rank uses memory which other lanes, of this rank or another, may
    /// use.
    pub(super) fn touch(
        &mut self,
        by: (usize, usize),
        of: usize,
        slice: Slice,
        writes: bool,
    ) -> Result<(), Flaw> {
        let home = self.home(by.0, of, slice);
        self.bounds(home, slice)?;
        let overlay = self.conditions.in_place.then(|| self.schedules[home].overlay());
        if self.nodes[home].expectations.meets(slice, overlay) {
            return Err(Flaw::Expected { rank: Rank::at(by.0), slice });
        }
        let touched = match (&mut self.shared.races, &mut self.lanes[by.0]) {
            (Some(races), _) => races.touch(by, (home, self.number), &slice, writes),
            // These clocks know this rank only, as rank 0.
            (None, Some(races)) => races.touch((0, by.1), (0, 0), &slice, writes),
            (None, None) => Ok(()),
        };
        let (rank, of) = (Rank::at(by.0), Rank::at(of));
        touched.map_err(|Race| Flaw::Race { rank, of, slice })
    }

    pub(super) fn read(&self, index: usize, slice: Slice) -> Result<Vec<Run>, Flaw> {
        self.read_of(index, index, slice)
    }

    /// The elements that rank `by` finds in `slice` of rank `of`.
    pub(super) fn read_of(&self, by: usize, of: usize, slice: Slice) -> Result<Vec<Run>, Flaw> {
        let index = self.home(by, of, slice);
        let (schedule, node) = (&self.schedules[index], &self.nodes[index]);
        let unwritten = Flaw::Unwritten { rank: Rank::at(index), slice };
        self.bounds(index, slice)?;
        let own = |from: &Ranks, shift| {
            let fold = Fold::input(index);
            alloc::vec![(slice.len, Value { shift, from: from.clone(), fold, finished: false })]
        };
        match slice.buffer {
            Buffer::Input => {
                if self.conditions.in_place && !self.is_intact(index, slice) {
                    return Err(unwritten);
                }
                match schedule.blocks().filter(|_| schedule.call().collective.reduces()) {
                    Some(blocks) => inputs(blocks, slice, &own(&node.own, 0)[0].1).ok_or(unwritten),
                    None => Ok(own(&node.own, 0)),
                }
            }
            Buffer::Output => node.output.read(slice.offset, slice.len).ok_or(unwritten),
            Buffer::Rounded => node.rounded.read(slice.offset, slice.len).ok_or(unwritten),
            Buffer::Staging => node.staging.read(slice.offset, slice.len).ok_or(unwritten),
            Buffer::Scratch if schedule.call().collective == Collective::Barrier => {
                Ok(own(&node.entered, 0))
            }
            Buffer::Scratch => match node.scratch.read(slice.offset, slice.len) {
                // A token says only that it was sent. It counts as finished, so no sum can contain
                // it.
                None if self.shares_memory => {
                    let (shift, from) = (0, Ranks::none(self.nodes.len()));
                    let value = Value { shift, from, fold: Fold::token(), finished: true };
                    Ok(alloc::vec![(slice.len, value)])
                }
                values => values.ok_or(unwritten),
            },
        }
    }

    /// Whether the output has overwritten no part of this input. Both are the same memory here.
    fn is_intact(&self, index: usize, slice: Slice) -> bool {
        let at = self.schedules[index].overlay();
        let start = slice.offset.cast_signed() - at;
        let end = (start + slice.len.cast_signed()).max(0).cast_unsigned();
        let start = start.max(0).cast_unsigned();
        self.nodes[index].output.is_unwritten(start, end.saturating_sub(start))
    }

    pub(super) fn write(
        &mut self,
        index: usize,
        slice: Slice,
        values: Vec<Run>,
    ) -> Result<(), Flaw> {
        self.bounds(index, slice)?;
        let home = self.home(index, index, slice);
        let node = &mut self.nodes[home];
        match slice.buffer {
            Buffer::Input => return Err(Flaw::Bounds { rank: Rank::at(index), slice }),
            Buffer::Output => node.output.write(slice.offset, values),
            Buffer::Scratch => node.scratch.write(slice.offset, values),
            Buffer::Rounded => node.rounded.write(slice.offset, values),
            Buffer::Staging => node.staging.write(slice.offset, values),
        }
        Ok(())
    }

    fn bounds(&self, index: usize, slice: Slice) -> Result<(), Flaw> {
        let schedule = &self.schedules[index];
        let (call, rank) = (schedule.call(), Rank::at(index));
        let [input, output] = schedule.lens();
        let len = match slice.buffer {
            Buffer::Input => input,
            Buffer::Output => output,
            Buffer::Scratch => schedule.scratch_len(),
            Buffer::Rounded => schedule.rounded_len(),
            Buffer::Staging => STAGING_BYTES / call.data_type.bytes(),
        };
        // The halves of the staging buffer may be swapped, so a slice must lie in one of them.
        let half = STAGING_HALF_BYTES / call.data_type.bytes();
        let is_torn = slice.buffer == Buffer::Staging && slice.offset % half + slice.len > half;
        if slice.end() > len || is_torn { Err(Flaw::Bounds { rank, slice }) } else { Ok(()) }
    }

    /// Values as they are on the wire. A run has no place of its own there: its shift is its first
    /// input's index.
    pub(super) fn read_to_send(&self, index: usize, src: Slice) -> Result<Vec<Run>, Flaw> {
        let mut values = self.read(index, src)?;
        let mut position = src.offset.cast_signed();
        for (len, value) in &mut values {
            value.shift += position;
            position += len.cast_signed();
        }
        Ok(values)
    }
}

/// The inputs in a slice of blocks whose places each rank chooses. The shifts lead to the places
/// that the elements have if blocks follow each other. `None` if an element is in no block.
fn inputs(blocks: &Blocks, slice: Slice, value: &Value) -> Option<Vec<Run>> {
    let (mut values, mut at) = (Vec::new(), slice.offset);
    while at < slice.end() {
        let ranks = (0..blocks.size()).map(Rank::at);
        let block = |rank| blocks.slice(Buffer::Input, rank);
        let rank =
            ranks.clone().find(|rank| (block(*rank).offset..block(*rank).end()).contains(&at))?;
        let end = block(rank).end().min(slice.end());
        let shift = blocks.before(rank).cast_signed() - block(rank).offset.cast_signed();
        values.push((end - at, Value { shift, ..value.clone() }));
        at = end;
    }
    Some(values)
}
