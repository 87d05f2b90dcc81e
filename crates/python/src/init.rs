//! The ways to make a communicator.

use std::cell::RefCell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringfold::{Communicator as Ranks, Config, Error, Rank, UniqueId};
use ringfold_foreign::{lock, made_ids, text_of};

use crate::communicator::{Communicator, read_id};
use crate::ended::{self, Listener};
use crate::fault::raise;
use crate::handle::{duration, poll};
use crate::queue::{self, CallQueue, Fault, end_functions, open_queues};
use crate::store::PythonStore;

/// The locks of the process.
type Locks = (
    MutexGuard<'static, Vec<Arc<CallQueue>>>,
    MutexGuard<'static, Option<Arc<Listener>>>,
    MutexGuard<'static, Vec<UniqueId>>,
);

thread_local! {
    /// The locks that this thread holds while it forks.
    static HELD: RefCell<Option<Locks>> = const { RefCell::new(None) };
}

/// Takes the locks of the process before a fork. Its child could never take one that another thread
/// held.
pub(crate) fn hold_for_fork() {
    HELD.set(Some((queue::hold(), ended::hold(), made_ids())));
}

/// Gives the locks back after a fork, in the parent and in the child.
pub(crate) fn end_fork() {
    HELD.take();
}

/// The settings of the environment, with the caller's times in seconds.
fn config(py: Python<'_>, timeout: Option<f64>, join_timeout: Option<f64>) -> PyResult<Config> {
    let config = Config::from_env().map_err(Error::from);
    let mut config = config.map_err(|error| raise(py, error.into()))?;
    if let Some(seconds) = timeout {
        config.timeout = duration(py, "timeout", seconds)?;
    }
    if let Some(seconds) = join_timeout {
        config.join_timeout = duration(py, "join_timeout", seconds)?;
    }
    Ok(config)
}

/// Joins a group in a thread of its own, while this one lets Python handle signals. After an
/// exception of a signal handler the thread leaves the group as soon as it has joined.
fn join(
    py: Python<'_>,
    join: impl FnOnce() -> Result<Ranks, Error> + Send + 'static,
) -> PyResult<Communicator> {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let joining = thread::Builder::new().name("ringfold-join".to_owned()).spawn(move || {
        let joined = join();
        // If nobody waits any more, the communicator is dropped here.
        sender.send(joined).unwrap_or_default();
    });
    let mut joining =
        Some(joining.map_err(|error| PyRuntimeError::new_err(format!("no thread: {error}")))?);
    let joined = poll(py, |slice| match lock(&receiver).recv_timeout(slice) {
        Ok(joined) => Some(Some(joined)),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(None),
    })?;
    let ended = joining.take().map(thread::JoinHandle::join);
    let joined = joined.ok_or_else(|| {
        let panic = ended.and_then(Result::err);
        let text = panic.as_deref().map_or(Some("it ended"), text_of);
        let text = text.unwrap_or("a panic without a text");
        raise(py, Fault::Defect(text.to_owned()))
    })?;
    Ok(Communicator::new(joined.map_err(|error| raise(py, error.into()))?))
}

/// Joins the group of ranks that a launcher started: ringrun, torchrun, srun or mpiexec. Without a
/// launcher the process becomes a group of one.
///
/// Every rank must call it. Waits until all ranks have joined. Settings are those of the
/// environment. `timeout` is the time in seconds that a call may take, and `join_timeout` the time
/// in which all ranks must join.
#[pyfunction]
#[pyo3(signature = (*, timeout=None, join_timeout=None))]
pub(crate) fn init(
    py: Python<'_>,
    timeout: Option<f64>,
    join_timeout: Option<f64>,
) -> PyResult<Communicator> {
    let config = config(py, timeout, join_timeout)?;
    join(py, move || Ranks::init_with(&config))
}

/// Makes the id of a group, with a fresh secret, and reserves a port for rank 0.
///
/// Call it in the process of rank 0, and pass the text on to the other ranks. It holds the secret
/// of the group, so only the ranks may see it. An id is good for one communicator.
#[pyfunction]
pub(crate) fn unique_id(py: Python<'_>) -> PyResult<String> {
    let config = config(py, None, None)?;
    let id = UniqueId::new(&config).map_err(|error| raise(py, error.into()))?;
    let text = id.to_string();
    made_ids().push(id);
    Ok(text)
}

/// Joins the group of `size` ranks that share the id of `unique_id`, as `rank`, without a launcher.
/// Everything else is as for `init`.
#[pyfunction]
#[pyo3(signature = (id, rank, size, *, timeout=None, join_timeout=None))]
pub(crate) fn init_with_id(
    py: Python<'_>,
    id: &str,
    rank: u32,
    size: usize,
    timeout: Option<f64>,
    join_timeout: Option<f64>,
) -> PyResult<Communicator> {
    let config = config(py, timeout, join_timeout)?;
    let id = read_id(py, id)?;
    join(py, move || Ranks::init_with_id(&config, &id, Rank(rank), size))
}

/// Joins the ranks of a running job, which call `Communicator.grow` with this id. Waits until they
/// admit this process. Rank 0 is never a newcomer, so it can broadcast the state of the job.
#[pyfunction]
#[pyo3(signature = (id, *, timeout=None, join_timeout=None))]
pub(crate) fn init_as_newcomer(
    py: Python<'_>,
    id: &str,
    timeout: Option<f64>,
    join_timeout: Option<f64>,
) -> PyResult<Communicator> {
    let config = config(py, timeout, join_timeout)?;
    let id = read_id(py, id)?;
    join(py, move || Ranks::init_as_newcomer(&config, &id))
}

/// Joins the group of `size` ranks that share a key-value store, as `rank`, without a launcher.
///
/// The store is an object with three methods. `set(key, value)` stores bytes under a text.
/// `get(key)` returns them, or None if no rank has set the key. `wait(key, timeout)` waits for the
/// key, for at most `timeout` seconds, and returns its value. The store is only used during the
/// call, and not in this thread. The n-th call of one rank meets the n-th call of the others.
/// Everything else is as for `init`.
#[pyfunction]
#[pyo3(signature = (store, rank, size, *, timeout=None, join_timeout=None))]
pub(crate) fn init_with_store(
    py: Python<'_>,
    store: Py<PyAny>,
    rank: u32,
    size: usize,
    timeout: Option<f64>,
    join_timeout: Option<f64>,
) -> PyResult<Communicator> {
    let config = config(py, timeout, join_timeout)?;
    let store = PythonStore(store);
    join(py, move || Ranks::init_with_store(&config, store, Rank(rank), size))
}

/// Makes a communicator of these `ranks` of `parent`, in this order, which share a key-value store.
///
/// Only these ranks call it, with the same list, at any time: it makes no call of the parent. The
/// wait for the others ends if one of them fails in the parent, or leaves it. Everything else is as
/// for `init_with_store`.
#[pyfunction]
#[pyo3(signature = (parent, store, ranks, *, timeout=None, join_timeout=None))]
pub(crate) fn subset_with_store(
    parent: &Bound<'_, Communicator>,
    store: Py<PyAny>,
    ranks: Vec<u32>,
    timeout: Option<f64>,
    join_timeout: Option<f64>,
) -> PyResult<Communicator> {
    let (py, queue) = (parent.py(), &parent.get().queue);
    if queue.is_forked() {
        return Err(raise(py, Fault::Forked));
    }
    let config = config(py, timeout, join_timeout)?;
    let (parent, store) = (queue.aborter.clone(), PythonStore(store));
    let ranks: Vec<Rank> = ranks.into_iter().map(Rank).collect();
    join(py, move || Ranks::subset_with_store(&config, store, &parent, &ranks))
}

/// How long the end of a process waits for calls that still run, and then for their failure to
/// reach the other ranks.
const LAST_CALLS: Duration = Duration::from_secs(1);
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Closes all communicators at the end of the process. A program that ends by an exception makes
/// the other ranks fail with `reason`. So does a call that still runs after a second.
#[pyfunction]
#[pyo3(signature = (reason=None))]
pub(crate) fn close_all(py: Python<'_>, reason: Option<&str>) -> PyResult<()> {
    let queues = open_queues();
    if let Some(reason) = reason {
        queues.iter().for_each(|queue| queue.aborter.abort(reason));
    }
    // The log has the errors.
    let ended = await_ends(py, &queues);
    py.detach(|| end_functions(LAST_WORDS));
    ended
}

/// Closes communicators and waits until they have left their groups. Aborts those with a call that
/// still runs after a second.
fn await_ends(py: Python<'_>, queues: &[Arc<CallQueue>]) -> PyResult<()> {
    let (began, last) = (Instant::now(), LAST_CALLS + LAST_WORDS);
    let is_after = |limit: Duration| (began.elapsed() >= limit).then_some(());
    let mut aborted = Vec::new();
    let mut abort = |queue: &Arc<CallQueue>| {
        queue.aborter.abort("the program ended during a call");
        aborted.push(Arc::clone(queue));
    };
    for queue in queues {
        // Leaving ends receives, so they come first.
        poll(py, |_| queue.is_finished().then_some(()).or_else(|| is_after(LAST_CALLS)))?;
        if !queue.is_finished() {
            abort(queue);
        }
        queue.close();
    }
    for queue in queues {
        poll(py, |slice| queue.ended_within(slice).or_else(|| is_after(LAST_CALLS)))?;
        if queue.ended_within(Duration::ZERO).is_none() {
            abort(queue);
        }
    }
    for queue in queues {
        let is_aborted = aborted.iter().any(|it| Arc::ptr_eq(it, queue));
        let is_late = || is_after(last).filter(|()| is_aborted);
        poll(py, |slice| queue.left_within(slice).map(drop).or_else(is_late))?;
    }
    Ok(())
}
