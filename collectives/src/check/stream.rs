//! What is on the wire from one rank to another, in one lane.

use alloc::collections::VecDeque;

use ringfold_types::Slice;

use super::memory::Run;
use super::races::Clock;
use crate::schedule::Form;

/// Elements that were sent and not taken.
#[derive(Default)]
pub(super) struct Stream {
    /// Elements that the link has accepted, by runs that were accepted at once.
    pub(super) runs: VecDeque<Run>,
    /// Form and depth of all elements, by counts.
    pub(super) marks: VecDeque<(usize, Form, usize)>,
    /// What their sender knew, where that matters.
    pub(super) clocks: VecDeque<Clock>,
    /// Elements that were accepted, and those of the offer after them.
    pub(super) elements: usize,
    pub(super) bytes: usize,
    /// The rest of an offer. It lies in the sender's memory, and is read when it is taken.
    offer: Option<Slice>,
    /// Elements of the offer that were taken since the sender last asked.
    taken: usize,
}

impl Stream {
    /// Offers `src` of the sender's memory.
    pub(super) fn offer(&mut self, src: Slice) {
        self.offer = Some(src);
    }

    /// How many elements of an offer the receiver has taken since the sender last asked; `None`
    /// without an offer.
    pub(super) fn accept(&mut self) -> Option<usize> {
        let left = self.offer?;
        if left.len == 0 {
            self.offer = None;
        }
        Some(core::mem::take(&mut self.taken))
    }

    /// Takes, for the receiver, the part of the next `elements` elements in the sender's memory.
    pub(super) fn take_offered(&mut self, elements: usize) -> Option<Slice> {
        let left = self.offer.as_mut()?;
        let more = elements.saturating_sub(self.elements - left.len);
        let part = left.take(more);
        *left = left.skip(more);
        self.taken += more;
        (more > 0).then_some(part)
    }
}
