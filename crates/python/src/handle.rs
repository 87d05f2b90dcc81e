//! Handles of calls in the background, and waits that signals interrupt.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyTimeoutError};
use pyo3::prelude::*;
use ringfold::{Aborter, Communicator};

use crate::fault::raise;
use crate::message::Message;
use crate::queue::{CallQueue, Fault, Outcome, Ticket};

/// How often a waiting thread lets Python handle signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether a blocking call of Python runs in this thread.
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
    /// The exception of a signal handler that has interrupted the call.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Lets Python handle signals while a blocking call waits. An exception of a handler, as
/// KeyboardInterrupt, aborts the communicator.
pub(crate) fn watch_signals(communicator: &mut Communicator) {
    let aborter = communicator.aborter();
    communicator.set_wait_hook(Some(Box::new(move || {
        if IS_CALLING.get() && INTERRUPT.with_borrow(Option::is_none) {
            Python::attach(|py| {
                if let Err(error) = py.check_signals() {
                    abort_for(py, &aborter, &error);
                    INTERRUPT.set(Some(error));
                }
            });
        }
    })));
}

/// Ends the blocking call of this thread with `error`, if that ends programs, as KeyboardInterrupt
/// does.
pub(crate) fn interrupt_with(py: Python<'_>, error: PyErr) {
    if IS_CALLING.get() && !error.is_instance_of::<PyException>(py) {
        INTERRUPT.set(Some(error));
    }
}

/// Aborts a communicator because a signal handler has raised `error`.
fn abort_for(py: Python<'_>, aborter: &Aborter, error: &PyErr) {
    let name = error.get_type(py).qualname();
    let name = name.map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
    aborter.abort(format!("a signal raised {name} while a call waited"));
}

/// Runs a blocking call without the GIL. Returns the exception of a signal handler that has
/// interrupted the call.
#[inline]
pub(crate) fn interruptible<R: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> R + Send,
) -> (R, Option<PyErr>) {
    let outer = IS_CALLING.replace(true);
    let result = py.detach(call);
    IS_CALLING.set(outer);
    (result, INTERRUPT.take())
}

/// Waits for a ticket without the GIL, at most until `deadline`.
///
/// # Errors
/// The exception of a signal handler, and that of a wait within another call of the communicator.
/// The call goes on.
pub(crate) fn wait(
    py: Python<'_>,
    ticket: &Ticket,
    deadline: Option<Instant>,
) -> PyResult<Option<Outcome>> {
    let mut outcome = ticket.outcome();
    if outcome.is_none() {
        ticket.queue.check_nested().map_err(|fault| raise(py, fault))?;
    }
    while outcome.is_none() {
        outcome = py.detach(|| ticket.wait(deadline, SIGNALS_EVERY));
        if outcome.is_none() {
            py.check_signals()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }
    settle(py, &ticket.queue)?;
    Ok(outcome)
}

/// Waits for the functions that learn of the ends of calls before a wait of this thread.
#[inline]
pub(crate) fn settle(py: Python<'_>, queue: &CallQueue) -> PyResult<()> {
    if queue.ends.settle(Duration::ZERO) {
        return Ok(());
    }
    poll(py, |slice| queue.ends.settle(slice).then_some(()))
}

/// Waits for a ticket, as a blocking call does: an exception of a signal handler aborts the
/// communicator.
pub(crate) fn wait_or_abort(py: Python<'_>, ticket: &Ticket) -> PyResult<()> {
    let abort = |error: &PyErr| abort_for(py, &ticket.queue.aborter, error);
    let outcome = wait(py, ticket, None).inspect_err(abort)?;
    drop(ticket.release());
    match outcome {
        Some(Err(fault)) => Err(raise(py, fault)),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Waits for `poll` to find something, and lets Python handle signals meanwhile.
pub(crate) fn poll<R: Send>(
    py: Python<'_>,
    poll: impl Fn(Duration) -> Option<R> + Sync,
) -> PyResult<R> {
    loop {
        if let Some(found) = py.detach(|| poll(SIGNALS_EVERY)) {
            return Ok(found);
        }
        py.check_signals()?;
    }
}

/// A time that the argument `name` gives in seconds. Any time beyond those that Rust counts, as
/// infinity, is the longest one.
pub(crate) fn duration(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        let text = format!(
            "{name}={seconds} is no time; pass seconds from 0 on, or math.inf for no limit"
        );
        return Err(raise(py, Fault::Argument(text)));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// A call in the background. A coroutine may await it.
///
/// The memory of the call belongs to the call until it is done. A handle may be dropped: the call
/// goes on.
#[pyclass(frozen, weakref, module = "ringfold")]
pub(crate) struct Handle {
    ticket: Arc<Ticket>,
}

impl Handle {
    pub(crate) const fn new(ticket: Arc<Ticket>) -> Self {
        Self { ticket }
    }

    fn outcome(&self) -> Option<Outcome> {
        let outcome = self.ticket.outcome();
        if outcome.is_some() {
            drop(self.ticket.release());
        }
        outcome
    }
}

#[pymethods]
impl Handle {
    /// Waits until the call is done, for at most `timeout` seconds.
    ///
    /// Raises the exception of the call, or TimeoutError after the timeout. KeyboardInterrupt ends
    /// the wait, and the call goes on.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(|seconds| duration(py, "timeout", seconds)).transpose()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Some(outcome) = wait(py, &self.ticket, deadline)? else {
            let seconds = timeout.unwrap_or_default().as_secs_f64();
            let text = format!("the call is not done after {seconds} seconds");
            return Err(PyTimeoutError::new_err(text));
        };
        drop(self.ticket.release());
        outcome.map_err(|fault| raise(py, fault))
    }

    /// Whether the call is done, with or without an exception. Advances the call, and does not
    /// wait.
    fn is_completed(&self, py: Python<'_>) -> bool {
        self.outcome().is_some() || py.detach(|| self.ticket.test()).is_some()
    }

    /// The `Message` of a receive that is done, and otherwise None. Does not wait.
    #[getter]
    fn message(&self) -> Option<Message> {
        self.ticket.message().map(Message::from)
    }

    /// The exception of the call, or None if it is not done or has succeeded. Does not wait.
    fn exception(&self, py: Python<'_>) -> Option<PyErr> {
        self.outcome()?.err().map(|fault| raise(py, fault))
    }

    /// Calls `function` with this handle when the call is done: at once if it is and no function
    /// waits for its turn, and otherwise in a thread of ringfold. An exception of the function goes
    /// to `sys.unraisablehook`.
    fn add_done_callback(slf: &Bound<'_, Self>, function: Py<PyAny>) {
        let handle = slf.clone().unbind();
        let callback = Box::new(move || {
            // Without an interpreter nobody waits for the function any more. The closure drops the
            // handle and the function with the GIL.
            Python::try_attach(move |py| {
                drop(handle.get().ticket.release());
                if let Err(error) = function.call1(py, (&handle,)) {
                    error.write_unraisable(py, Some(function.bind(py)));
                }
            });
        });
        if let Some(callback) = slf.get().ticket.at_end(callback) {
            callback();
        }
    }

    /// Waits for the call in a coroutine, while the loop of asyncio goes on. Raises the exception
    /// of the call. If the coroutine is cancelled, the call goes on.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("ringfold._awaiting")?.getattr("ended")?;
        ended.call1((slf,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> &'static str {
        match self.ticket.outcome() {
            None => "<ringfold.Handle: running>",
            Some(Ok(())) => "<ringfold.Handle: done>",
            Some(Err(_)) => "<ringfold.Handle: failed>",
        }
    }
}
