//! The thread that learns of the ends of calls: it calls the functions of Python that wait for
//! them, and releases memory and objects of calls that nobody else has released.
//!
//! A thread that ends a call has the communicator, so it must not wait for the GIL. The waiter for
//! a call releases its memory.

use std::any::Any;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use ringfold_foreign::lock;

/// The time in which a waiter may release the memory, so that the thread needs no GIL for it.
const PATIENCE: Duration = Duration::from_millis(20);

/// A function that learns of the end of a call.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// How many calls of a communicator have ended whose functions the thread calls, and for how many
/// it has.
#[derive(Default)]
pub(crate) struct Ends {
    told: AtomicU64,
    heard: AtomicU64,
}

/// The end of a call.
pub(crate) struct Ended {
    /// Those of its communicator.
    pub(crate) of: Arc<Ends>,
    pub(crate) callbacks: Vec<Callback>,
    /// Takes the memory and objects of the call, unless a waiter has taken them.
    pub(crate) take: Box<dyn FnOnce() -> Option<Box<dyn Any + Send>> + Send>,
}

/// The thread of this process, and the calls that have ended.
pub(crate) struct Listener {
    /// The number of forks behind the process.
    forks: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order in which they have ended.
    ended: Vec<Ended>,
    /// Whether functions wait, or the interpreter ends.
    is_urgent: bool,
    is_over: bool,
    has_left: bool,
}

static LISTENER: Mutex<Option<Arc<Listener>>> = Mutex::new(None);

thread_local! {
    /// The ends of the communicator for whose call this thread calls a function, by their address.
    static CALLING_FOR: Cell<*const Ends> = const { Cell::new(ptr::null()) };
}

impl Ends {
    /// Whether this thread calls a function of Python for such a call: one that learns of its end,
    /// or its operation.
    pub(crate) fn is_called_here(&self) -> bool {
        ptr::eq(CALLING_FOR.get(), self)
    }

    /// Calls a function of Python for such a call.
    pub(crate) fn calling<R>(&self, function: impl FnOnce() -> R) -> R {
        let outer = CALLING_FOR.replace(self);
        let result = function();
        CALLING_FOR.set(outer);
        result
    }

    /// Whether no function that learns of an end waits or runs.
    pub(crate) fn are_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire) == self.told.load(Ordering::Acquire)
    }

    /// Waits until functions have been called that learn of ends before this wait, at most for
    /// `limit`. Whether they have. Does not wait within such a function.
    pub(crate) fn settle(&self, limit: Duration) -> bool {
        let told = self.told.load(Ordering::Acquire);
        let is_settled = || self.heard.load(Ordering::Acquire) >= told;
        if is_settled() || !CALLING_FOR.get().is_null() {
            return true;
        }
        let Some(listener) = lock(&LISTENER).clone() else { return true };
        let is_waiting = |it: &mut State| !is_settled() && !it.has_left;
        let state = lock(&listener.state);
        let waited = listener.changed.wait_timeout_while(state, limit, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !is_waiting(&mut state)
    }
}

impl Listener {
    /// Starts the thread. Without one, the next call of Python releases the memory.
    fn start(forks: u64) -> Option<Arc<Self>> {
        let listener = Arc::new(Self { forks, state: Mutex::default(), changed: Condvar::new() });
        let ours = Arc::clone(&listener);
        let thread = thread::Builder::new().name("ringfold-ended".to_owned());
        thread.spawn(move || ours.listen()).ok()?;
        Some(listener)
    }

    fn listen(&self) {
        let mut state = lock(&self.state);
        while !state.is_over || !state.ended.is_empty() {
            if state.ended.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout_while(state, PATIENCE, |it| !it.is_urgent);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.is_urgent = state.is_over;
            let ended = std::mem::take(&mut state.ended);
            drop(state);
            let learn = |Ended { of, callbacks, take }| {
                if !callbacks.is_empty() {
                    of.calling(|| callbacks.into_iter().for_each(|callback: Callback| callback()));
                    of.heard.fetch_add(1, Ordering::Release);
                    drop(lock(&self.state));
                    self.changed.notify_all();
                }
                take()
            };
            let kept: Vec<_> = ended.into_iter().filter_map(learn).collect();
            if !kept.is_empty() {
                Python::try_attach(move |_| drop(kept));
            }
            state = lock(&self.state);
        }
        state.has_left = true;
        drop(state);
        self.changed.notify_all();
    }
}

/// Tells the thread of the end of a call. `forks` is the number of forks behind this process.
pub(crate) fn tell(forks: u64, ended: Ended) {
    let mut listener = lock(&LISTENER);
    if listener.as_ref().is_none_or(|it| it.forks != forks) {
        *listener = Listener::start(forks);
    }
    let Some(listener) = listener.as_deref() else { return };
    let has_functions = !ended.callbacks.is_empty();
    ended.of.told.fetch_add(has_functions.into(), Ordering::Release);
    let mut state = lock(&listener.state);
    // A thread that waits to release memory does not wake for more of it.
    let is_asleep = state.ended.is_empty() || has_functions;
    state.is_urgent |= has_functions;
    state.ended.push(ended);
    drop(state);
    if is_asleep {
        listener.changed.notify_all();
    }
}

/// Keeps other threads from starting the thread, while the process forks.
pub(crate) fn hold() -> MutexGuard<'static, Option<Arc<Listener>>> {
    lock(&LISTENER)
}

/// Ends the thread after the functions that wait for it, because the interpreter ends. Waits for
/// the thread, at most for `limit`, so the caller must not hold the GIL.
pub(crate) fn end(forks: u64, limit: Duration) {
    let Some(listener) = lock(&LISTENER).clone().filter(|it| it.forks == forks) else { return };
    let mut state = lock(&listener.state);
    (state.is_over, state.is_urgent) = (true, true);
    listener.changed.notify_all();
    let waited = listener.changed.wait_timeout_while(state, limit, |it| !it.has_left);
    drop(waited);
}
