//! The chunks of a lane: handed over to a provider, or passed on by the members' own operations.

use crate::program::Op;

/// The chunks of one lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    /// Chunks handed over to the provider.
    pub(super) posted: u32,
    /// Results taken from it.
    pub(super) taken: u32,
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
    /// Where the lane was.
    place: Place,
}

/// The index of a lane's current operation, and the elements of it that are done.
pub(super) type Place = (usize, usize);

impl Chunks {
    /// Without a provider.
    pub(super) const RELAYED: Self = Self { posted: 0, taken: 0, relayed_from: 0, again: None };

    /// With a provider.
    pub(super) const OFFLOADED: Self = Self { relayed_from: u32::MAX, ..Self::RELAYED };

    /// Whether a chunk goes by the members' own operations.
    pub(super) const fn relays(&self, chunk: u32) -> bool {
        chunk >= self.relayed_from
    }

    /// Gives up the provider from chunk `from` on, for a lane at `place`. Returns its new place.
    pub(super) fn relay_from(&mut self, from: u32, ops: &[Op], place: Place) -> Place {
        let Self { posted, taken, relayed_from, .. } = *self;
        assert!(relayed_from == u32::MAX, "a lane gives up its provider once");
        assert!((taken..=posted).contains(&from), "{taken} taken, {from}, {posted} handed over");
        self.relayed_from = from;
        self.pass_on(ops, Again { next: from, end: 0, place })
    }

    /// The operations of chunk `again.next`, if the lane has handed it over, or else the place
    /// where the lane was.
    fn pass_on(&mut self, ops: &[Op], again: Again) -> Place {
        let of_chunk = |(at, op): (usize, &Op)| match op {
            Op::Post { chunk, ops, .. } if *chunk == again.next => Some((at + 1, *ops)),
            _ => None,
        };
        let is_due = again.next < self.posted;
        let found = if is_due { ops.iter().enumerate().find_map(of_chunk) } else { None };
        let Some((at, ops)) = found else {
            self.again = None;
            return again.place;
        };
        self.again = Some(Again { next: again.next + 1, end: at + ops as usize, ..again });
        (at, 0)
    }

    /// The place of a lane at `place`, if it has just passed on a chunk again: the next chunk, or
    /// where it was before.
    #[inline]
    pub(super) fn after(&mut self, ops: &[Op], mut place: Place) -> Place {
        while let Some(again) = self.again.filter(|again| again.end == place.0) {
            place = self.pass_on(ops, again);
        }
        place
    }
}
