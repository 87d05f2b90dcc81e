//! The elements on the wire from one rank to another, in one lane.

use alloc::collections::VecDeque;

use ringfold_types::Slice;

use super::memory::Run;
use super::races::Clock;
use crate::schedule::Form;

/// Elements that were sent and not yet received.
#[derive(Default)]
pub(super) struct Stream {
    /// Elements that the link has accepted, by runs that it accepted at once.
    pub(super) runs: VecDeque<Run>,
    /// All elements, by runs that were sent at once.
    pub(super) marks: VecDeque<Mark>,
    /// The clocks of their sender, where ranks share memory.
    pub(super) clocks: VecDeque<Clock>,
    /// Elements that the link has accepted, and those of the offer after them.
    pub(super) elements: usize,
    pub(super) bytes: usize,
    /// The rest of a rendezvous send. It lies in the sender's memory, and the receiver reads it
    /// from there.
    offer: Option<Slice>,
    /// Elements of the offer that the receiver took since the sender last asked.
    taken: usize,
}

/// Elements that were sent at once.
pub(super) struct Mark {
    pub(super) elements: usize,
    pub(super) form: Form,
    /// Length of the chain of messages to them.
    pub(super) depth: usize,
    /// The number of their call.
    pub(super) call: usize,
}

impl Stream {
    /// Number of elements of this call at the front; `None` if those of another call are there.
    pub(super) fn arrived(&self, call: usize) -> Option<usize> {
        let own = self.marks.iter().take_while(|mark| mark.call == call);
        let own = own.map(|mark| mark.elements).sum();
        (own > 0 || self.marks.is_empty()).then_some(own)
    }

    /// Offers `src` of the sender's memory as a rendezvous send.
    pub(super) fn offer(&mut self, src: Slice) {
        self.offer = Some(src);
    }

    /// Number of elements of an offer that the receiver has taken since the sender last asked;
    /// `None` without an offer.
    pub(super) fn accept(&mut self) -> Option<usize> {
        let left = self.offer?;
        if left.len == 0 {
            self.offer = None;
        }
        Some(core::mem::take(&mut self.taken))
    }

    /// Takes, for the receiver, the part of the next `elements` elements that lies in the sender's
    /// memory.
    pub(super) fn take_offered(&mut self, elements: usize) -> Option<Slice> {
        let left = self.offer.as_mut()?;
        let more = elements.saturating_sub(self.elements - left.len);
        let part = left.take(more);
        *left = left.skip(more);
        self.taken += more;
        (more > 0).then_some(part)
    }
}
