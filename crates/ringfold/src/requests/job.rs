//! Job calls, as the engine performs them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_lend::Loan;

use crate::buffers::{Buffers, Place};
use crate::core::{BegunCall, StartedCall};
use crate::error::Error;
use crate::messages::{End, Receiving, Sending};
use crate::packs::Pack;
use crate::ticket::Ticket;

/// A call or a message that a program has started.
#[derive(Debug)]
pub(crate) enum Job {
    Call(CallJob),
    Send(Sending),
    Receive(Receiving),
}

impl Job {
    /// Whether the result goes to this ticket.
    pub(super) fn is_of(&self, ticket: &Arc<Ticket>) -> bool {
        let own = match self {
            Self::Call(CallJob { ticket, .. })
            | Self::Send(Sending { end: End::Started(ticket), .. })
            | Self::Receive(Receiving { end: End::Started(ticket), .. }) => ticket,
            Self::Send(_) | Self::Receive(_) => return false,
        };
        Arc::ptr_eq(own, ticket)
    }

    /// The same call in other memory, to be started now.
    pub(super) fn again(&self, memory: Loan, ticket: Arc<Ticket>, timeout: Duration) -> Self {
        let (deadline, end) = (Some(Instant::now() + timeout), End::Started);
        match self {
            Self::Call(CallJob { call, place, .. }) => Self::Call(CallJob {
                call: call.clone(),
                place: *place,
                timeout,
                memory: Memory::Lent(memory),
                begun: None,
                ticket,
            }),
            Self::Send(Sending { elements, to, tag, .. }) => {
                Self::Send(Sending::new(memory, *elements, (*to, *tag), deadline, end(ticket)))
            }
            Self::Receive(Receiving { elements, from, tag, .. }) => {
                let which = (*from, *tag);
                Self::Receive(Receiving::new(memory, *elements, which, deadline, end(ticket)))
            }
        }
    }

    /// Whether the memory of a collective has the place for which it was checked.
    pub(super) fn is_in_place(&mut self) -> bool {
        match self {
            Self::Call(call) => Place::of(&call.memory.buffers()) == call.place,
            Self::Send(_) | Self::Receive(_) => true,
        }
    }
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
        let Self { mut memory, ticket, .. } = self;
        if let (Memory::Packed(pack), Ok(())) = (&mut memory, &result) {
            pack.scatter();
        }
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
pub(crate) enum Memory {
    /// Memory of the program.
    Lent(Loan),
    /// Memory of several calls of a group.
    Packed(Box<Pack>),
}

impl Memory {
    pub(crate) fn buffers(&mut self) -> Buffers<'_> {
        match self {
            Self::Lent(loan) => Buffers::of_loan(loan),
            Self::Packed(pack) => pack.buffers(),
        }
    }
}
