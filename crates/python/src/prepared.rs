//! Prepared calls, which a program starts many times.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringfold::{Communicator, Error};
use ringfold_foreign::lock;

use crate::fault::raise;
use crate::handle::Handle;
use crate::queue::{CallQueue, Fault, Requests, Ticket};

thread_local! {
    /// What `prepare` of this thread has found. `None` outside of it.
    static PREPARING: RefCell<Option<Option<Prepared>>> = const { RefCell::new(None) };
}

/// Starts a call on a communicator, which has given its requests then.
pub(crate) trait Begin:
    Fn(&mut Communicator, &mut Requests) -> Result<(), Error> + Send + Sync + 'static
{
}

impl<F> Begin for F where
    F: Fn(&mut Communicator, &mut Requests) -> Result<(), Error> + Send + Sync + 'static
{
}

/// A call of `Communicator.prepare`, with its memory. `start` starts it, as often as the program
/// wants.
#[pyclass(frozen, module = "ringfold")]
pub(crate) struct Prepared {
    queue: Arc<CallQueue>,
    begin: Arc<dyn Begin>,
    timeout: Option<Duration>,
    /// Memory and objects of the call.
    kept: Py<PyAny>,
    /// The newest start.
    newest: Mutex<Option<Arc<Ticket>>>,
}

/// Whether this thread prepares a call, which must not start then.
pub(crate) fn is_preparing() -> bool {
    PREPARING.with_borrow(Option::is_some)
}

/// Keeps a call for the `prepare` of this thread, which takes one.
pub(crate) fn put(
    queue: &Arc<CallQueue>,
    begin: impl Begin,
    timeout: Option<Duration>,
    kept: Py<PyAny>,
) -> Result<(), Fault> {
    let (queue, begin, newest) = (Arc::clone(queue), Arc::new(begin), Mutex::default());
    let call = Prepared { queue, begin, timeout, kept, newest };
    PREPARING.with_borrow_mut(|place| match place {
        Some(found @ None) => {
            *found = Some(call);
            Ok(())
        }
        _ => Err(Fault::Argument("prepare takes a method that makes one call".to_owned())),
    })
}

/// Has `method` make a call that is kept, and not started.
pub(crate) fn prepare(
    queue: &Arc<CallQueue>,
    method: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Prepared> {
    let py = method.py();
    let refuse = |text: &str| raise(py, Fault::Argument(text.to_owned()));
    let keywords = keywords.map_or_else(|| Ok(PyDict::new(py)), PyDictMethods::copy)?;
    keywords.set_item("async_op", true)?;
    let outer = PREPARING.replace(Some(None));
    let made = method.call(arguments, Some(&keywords));
    let found = PREPARING.replace(outer).flatten();
    made?;
    let call = found.ok_or_else(|| refuse("prepare takes a method that starts a call"))?;
    if !Arc::ptr_eq(&call.queue, queue) {
        return Err(refuse("prepare takes a method of this communicator"));
    }
    Ok(call)
}

#[pymethods]
impl Prepared {
    /// Starts the call, after all calls that were started before, and returns its `Handle`. Does
    /// not wait for other ranks. Raises an ArgumentError while the start before has not ended.
    fn start(&self, py: Python<'_>) -> PyResult<Handle> {
        let refuse = |fault| raise(py, fault);
        let ticket = Ticket::new(&self.queue);
        let mut newest = lock(&self.newest);
        if newest.as_ref().is_some_and(|newest| newest.outcome().is_none()) {
            drop(newest);
            let text = "the call is active; wait for it before its next start";
            return Err(refuse(Fault::Argument(text.to_owned())));
        }
        let before = newest.replace(Arc::clone(&ticket));
        drop(newest);
        let begin = Arc::clone(&self.begin);
        let begin = move |ranks: &mut Communicator, requests: &mut Requests| begin(ranks, requests);
        if let Err(fault) = py.detach(|| self.queue.start(self.timeout, &ticket, begin)) {
            *lock(&self.newest) = before;
            return Err(refuse(fault));
        }
        drop(ticket.keep(Box::new(self.kept.clone_ref(py))));
        Ok(Handle::new(ticket))
    }

    fn __repr__(&self) -> &'static str {
        let newest = lock(&self.newest).clone();
        let is_active = newest.is_some_and(|newest| newest.outcome().is_none());
        if is_active { "<ringfold.Prepared: active>" } else { "<ringfold.Prepared>" }
    }
}
