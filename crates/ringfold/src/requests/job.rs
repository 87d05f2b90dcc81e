//! Job calls, as the engine performs them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ringfold_lend::Loan;

use crate::buffers::{Buffers, Place};
use crate::core::{BegunCall, StartedCall};
use crate::error::Error;
use crate::messages::{Receiving, Sending};
use crate::ticket::Ticket;

/// A call or a message that a program has started.
#[derive(Debug)]
pub(crate) enum Job {
    Call(CallJob),
    Send(Sending),
    Receive(Receiving),
}

/// A started call.
pub(crate) struct CallJob {
    pub(crate) call: StartedCall,
    pub(crate) place: Place,
    pub(crate) timeout: Duration,
    pub(crate) memory: Memory,
    /// The state of the call since it began.
    pub(crate) begun: Option<BegunCall>,
    pub(crate) ticket: Arc<Ticket>,
}

impl CallJob {
    /// Ends the call: gives the memory back, and then the result.
    pub(crate) fn end(self, result: Result<(), Error>) {
        let Self { memory, ticket, .. } = self;
        drop(memory);
        ticket.end(result.map(|()| None));
    }
}

impl fmt::Debug for CallJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.call.operation(0), f)
    }
}

/// The memory of a started call.
pub(crate) struct Memory(pub(crate) Loan);

impl Memory {
    pub(crate) const fn buffers(&mut self) -> Buffers<'_> {
        match self.0.memory() {
            (None, both) => Buffers::InPlace(both),
            (Some(input), output) => Buffers::Apart { input, output },
        }
    }
}
