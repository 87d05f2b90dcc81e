//! Started calls, as the engine performs them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ringfold_lend::Loan;
use ringfold_types::Call;

use crate::buffers::{Buffers, Place};
use crate::core::BegunCall;
use crate::error::Error;

/// A started call.
pub(crate) struct Job {
    /// The call, which was checked.
    pub(crate) call: Call,
    pub(crate) place: Place,
    pub(crate) timeout: Duration,
    pub(crate) memory: Memory,
    /// The state of the call since it began.
    pub(crate) begun: Option<BegunCall>,
    pub(crate) ticket: Arc<Ticket>,
}

impl Job {
    /// Ends the call: gives the memory back, and then the result.
    pub(crate) fn end(self, result: Result<(), Error>) {
        let Self { memory, ticket, .. } = self;
        drop(memory);
        ticket.end(result);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.call, f)
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

/// The result of a started call, for the thread that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    has_ended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

impl Ticket {
    /// Whether the call has ended. Its memory is the caller's again then.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn end(&self, result: Result<(), Error>) {
        let mut state = self.state();
        state.result = Some(result);
        let waker = state.waker.take();
        self.has_ended.store(true, Ordering::Release);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the result of a call that has ended.
    pub(crate) fn take(&self) -> Option<Result<(), Error>> {
        self.state().result.take()
    }

    /// Has `waker` woken when the call ends. Whether it has ended.
    pub(crate) fn wake_at_end(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if !self.has_ended() {
            state.waker = Some(waker.clone());
        }
        self.has_ended()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
