//! Job calls, as the engine performs them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_lend::Loan;

use crate::buffers::{Buffers, Lent, Place};
use crate::core::{BegunCall, StartedCall};
use crate::error::Error;
use crate::messages::{End, Receiving, Sending};
use crate::packs::Pack;
use crate::shared::Claim;
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
            Self::Call(CallJob { call, place, memory: own, .. }) => {
                let memory = match own {
                    Memory::Windows(claim, _) => Memory::Windows(Box::new(claim.again()), memory),
                    Memory::Lent(_) | Memory::Packed(_) => Memory::Lent(memory),
                };
                let (call, place, begun) = (call.clone(), *place, None);
                Self::Call(CallJob { call, place, timeout, memory, begun, ticket })
            }
            Self::Send(Sending { elements, to, tag, .. }) => {
                Self::Send(Sending::new(memory, *elements, (*to, *tag), deadline, end(ticket)))
            }
            Self::Receive(Receiving { elements, from, tag, .. }) => {
                let which = (*from, *tag);
                Self::Receive(Receiving::new(memory, *elements, which, deadline, end(ticket)))
            }
        }
    }

    /// Checks that the memory of a collective has the place for which it was checked, or that its
    /// windows are there. Otherwise returns why it cannot start.
    pub(super) fn check_memory(&mut self) -> Result<(), &'static str> {
        match self {
            Self::Call(CallJob { memory: Memory::Windows(claim, _), .. }) => {
                claim.start().then_some(()).ok_or("the program has taken its window")
            }
            Self::Call(CallJob { memory, place, .. }) => (memory.lent().place() == *place)
                .then_some(())
                .ok_or("its buffers have other lengths than at its preparation"),
            Self::Send(_) | Self::Receive(_) => Ok(()),
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
    /// Windows of the program. The loan is that of the value in the request.
    Windows(
        Box<Claim>,
        #[expect(dead_code, reason = "it ends with the call, and then the request has it back")]
        Loan,
    ),
}

impl Memory {
    pub(crate) fn lent(&mut self) -> Lent<'_> {
        match self {
            Self::Lent(loan) => Lent::Private(Buffers::of_loan(loan)),
            Self::Packed(pack) => Lent::Private(pack.buffers()),
            Self::Windows(claim, _) => claim.lent(),
        }
    }
}
