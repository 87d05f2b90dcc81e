//! The two ends of a message: a send of this rank, and a receive.

use std::sync::Arc;
use std::time::Instant;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_lend::{Loan, borrow_input, borrow_output};
use ringfold_types::Rank;

use super::header::Elements;
use crate::error::{CallError, Error, Message, Operation};
use crate::ticket::{Outcome, Ticket};

/// The place to which the outcome of a message goes.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// To the blocking call.
    Foreground,
    /// To the request of a started message.
    Started(Arc<Ticket>),
}

/// A message that this rank sends.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) to: Rank,
    pub(crate) tag: u32,
    pub(crate) elements: Elements,
    pub(crate) memory: Loan,
    /// Bytes that the transport has accepted, with the header.
    pub(crate) accepted: usize,
    pub(crate) deadline: Option<Instant>,
    pub(crate) end: End,
}

/// A receive.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// `None` for any rank.
    pub(crate) from: Option<Rank>,
    /// `None` for any tag.
    pub(crate) tag: Option<u32>,
    pub(crate) elements: Elements,
    pub(crate) memory: Loan,
    pub(crate) deadline: Option<Instant>,
    pub(crate) end: End,
    /// The number of the receive in the order of all.
    pub(crate) number: u64,
}

/// The messages of a blocking call.
#[derive(Debug, Default)]
pub(super) struct Foreground {
    pub(super) left: usize,
    pub(super) outcome: Option<Outcome>,
}

impl Sending {
    /// A message of a blocking call, which borrows its bytes.
    pub(crate) fn borrowed<T: Pod>(data: &[T], to: Rank, tag: u32) -> Self {
        let memory = borrow_input(cast_slice(data));
        Self::new(memory, Elements::of::<T>(), (to, tag), None, End::Foreground)
    }

    pub(crate) const fn new(
        memory: Loan,
        elements: Elements,
        (to, tag): (Rank, u32),
        deadline: Option<Instant>,
        end: End,
    ) -> Self {
        Self { to, tag, elements, memory, accepted: 0, deadline, end }
    }

    pub(super) fn bytes(&mut self) -> &[u8] {
        self.memory.memory().0.unwrap_or_default()
    }

    pub(crate) fn message(&mut self) -> Message {
        let bytes = self.bytes().len();
        Message { is_sent: true, peer: self.to, tag: self.tag, bytes }
    }

    pub(super) fn end(self, foreground: &mut Foreground, outcome: Outcome) {
        let Self { memory, end, .. } = self;
        drop(memory);
        foreground.end(end, outcome);
    }
}

impl Receiving {
    /// A receive of a blocking call, which borrows its buffer.
    pub(crate) fn borrowed<T: Pod>(data: &mut [T], from: Option<Rank>, tag: Option<u32>) -> Self {
        let memory = borrow_output(cast_slice_mut(data));
        Self::new(memory, Elements::of::<T>(), (from, tag), None, End::Foreground)
    }

    pub(crate) const fn new(
        memory: Loan,
        elements: Elements,
        (from, tag): (Option<Rank>, Option<u32>),
        deadline: Option<Instant>,
        end: End,
    ) -> Self {
        Self { from, tag, elements, memory, deadline, end, number: 0 }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.memory.memory().1
    }

    pub(crate) fn operation(&mut self) -> Operation {
        let (from, tag, bytes) = (self.from, self.tag, self.bytes().len());
        Operation::Receive { from, tag, bytes }
    }

    pub(crate) fn takes(&self, tag: u32) -> bool {
        self.tag.is_none_or(|own| own == tag)
    }

    /// Checks a message that the receive takes.
    ///
    /// # Errors
    /// The types differ.
    pub(super) fn check_type(
        &mut self,
        message: &Message,
        elements: Elements,
    ) -> Result<(), CallError> {
        if elements.fits(self.elements) {
            return Ok(());
        }
        let (operation, own) = (self.operation(), self.elements);
        let Message { peer, bytes, tag, .. } = *message;
        let cause = format!(
            "{operation} of {own} met a message of {bytes} bytes of {elements} with tag {tag}"
        );
        Err(CallError::Unexpected { peer, cause })
    }

    pub(super) fn end(self, foreground: &mut Foreground, outcome: Outcome) {
        let Self { memory, end, .. } = self;
        drop(memory);
        foreground.end(end, outcome);
    }

    /// Ends the receive of a message that is longer than its buffer.
    pub(super) fn refuse(mut self, foreground: &mut Foreground, rank: Rank, message: Message) {
        let buffer = self.bytes().len();
        self.end(foreground, Err(Error::Truncated { rank, buffer, message }));
    }
}

impl Foreground {
    pub(super) fn end(&mut self, end: End, outcome: Outcome) {
        match end {
            End::Started(ticket) => ticket.end(outcome),
            End::Foreground => {
                self.left -= 1;
                match (&self.outcome, &outcome) {
                    (Some(Err(_)), _) | (Some(Ok(Some(_))), Ok(None)) => {}
                    _ => self.outcome = Some(outcome),
                }
            }
        }
    }
}
