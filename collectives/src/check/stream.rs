//! What is on the wire from one rank to another, in one lane.

use alloc::collections::VecDeque;

use super::memory::Run;
use super::races::Clock;
use crate::schedule::Form;

/// Elements that were sent and not taken.
#[derive(Default)]
pub(super) struct Stream {
    /// Elements on the wire, by runs that were accepted at once.
    pub(super) runs: VecDeque<Run>,
    /// Form and depth of the same elements, by counts.
    pub(super) marks: VecDeque<(usize, Form, usize)>,
    /// What their sender knew, where that matters.
    pub(super) clocks: VecDeque<Clock>,
    pub(super) elements: usize,
    pub(super) bytes: usize,
    /// The last of these are offered, if any,
    pub(super) offered: usize,
    /// and of the offer so many were taken and are accepted.
    accepted: usize,
}

impl Stream {
    /// How many elements of the offer were taken since this was last asked.
    pub(super) fn accept(&mut self) -> usize {
        let taken = self.offered - self.offered.min(self.elements);
        let more = taken - core::mem::replace(&mut self.accepted, taken);
        if taken == self.offered {
            (self.offered, self.accepted) = (0, 0);
        }
        more
    }
}
