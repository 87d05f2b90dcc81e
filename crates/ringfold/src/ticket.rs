//! The results of started calls and messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::error::{Error, Message};

/// The outcome of a call or message. A receive has the message that it took.
pub(crate) type Outcome = Result<Option<Message>, Error>;

/// The result of a started call or message, for the thread that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    has_ended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    /// For a group of calls, those that have not ended.
    parts: Option<usize>,
    waker: Option<Waker>,
    /// Makes the descriptor of the request readable.
    event: Option<Waker>,
}

impl Ticket {
    /// Whether the call has ended. Its memory is the caller's again then.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        let mut state = self.state();
        let State { outcome: known, parts, .. } = &mut *state;
        match parts {
            None => *known = Some(outcome),
            Some(left) => {
                *left -= 1;
                // A failure counts for more than a message that was too long.
                match (&*known, outcome) {
                    (Some(Err(Error::Failed(_))), _) | (Some(Err(_)), Ok(_)) => {}
                    (_, outcome) => *known = Some(outcome.map(|_| None)),
                }
                if *left > 0 {
                    return;
                }
            }
        }
        let wakers = [state.waker.take(), state.event.take()];
        self.has_ended.store(true, Ordering::Release);
        drop(state);
        for waker in wakers.into_iter().flatten() {
            // A panic must not keep other calls from their ends.
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::error!("the waker of a request panicked");
            }
        }
    }

    /// Has the ticket end with the last of `parts` calls. Ends it if there are none.
    pub(crate) fn await_parts(&self, parts: usize) {
        if parts == 0 {
            return self.end(Ok(None));
        }
        self.state().parts = Some(parts);
    }

    /// Takes the outcome of a call that has ended.
    pub(crate) fn take(&self) -> Option<Outcome> {
        if self.has_ended() { self.state().outcome.take() } else { None }
    }

    /// Has `waker` woken when the call ends. Whether it has ended.
    pub(crate) fn wake_at_end(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if !self.has_ended() {
            state.waker = Some(waker.clone());
        }
        self.has_ended()
    }

    /// Has `event` woken once, now or when the call ends.
    pub(crate) fn signal_at_end(&self, event: Waker) {
        let mut state = self.state();
        if self.has_ended() {
            drop(state);
            event.wake();
        } else {
            state.event = Some(event);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
