//! The calls of one communicator, in their order.
//!
//! A call runs in the thread that makes it if no other call runs or waits. Otherwise it waits in
//! the queue for a worker thread, as calls do that nobody waits for. Nothing here touches Python;
//! `release` frees the memory of finished calls.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ringfold::{Aborter, Communicator, Error, Rank};
use ringfold_foreign::{lock, text_of};

use crate::release;

/// The reason why a call has no result.
#[derive(Clone)]
pub(crate) enum Fault {
    /// The error of the call.
    Call(Error),
    /// An argument of the binding is invalid. Nothing was sent.
    Argument(String),
    /// The communicator has left its group.
    Closed,
    /// This process is a child of the one that made the communicator.
    Forked,
    /// A thread waits for a call of a communicator within another call of it: a signal handler, a
    /// callback or an operation of the user does so.
    Nested,
    /// A defect of ringfold.
    Defect(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

pub(crate) type Outcome = Result<(), Fault>;

/// The number of forks behind this process. A child counts its own; see [`forked`].
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Counts a fork, in the child.
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The communicators that have not left their groups. The end of the process waits for them.
static OPEN: Mutex<Vec<Arc<CallQueue>>> = Mutex::new(Vec::new());

/// Keeps other threads from the communicators, while the process forks.
pub(crate) fn hold() -> MutexGuard<'static, Vec<Arc<CallQueue>>> {
    lock(&OPEN)
}

/// A call that waits for the worker, and the ticket that gets its outcome.
type Job = (Box<dyn FnOnce(&mut Communicator) -> Outcome + Send>, Arc<Ticket>);

/// A communicator and its calls.
pub(crate) struct CallQueue {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) name: Option<String>,
    pub(crate) aborter: Aborter,
    forks: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The communicator while no call uses it.
    idle: Option<Box<Communicator>>,
    queue: VecDeque<Job>,
    has_worker: bool,
    /// Whether no calls may come any more.
    is_closed: bool,
    /// Whether all calls have ended, and the communicator leaves its group.
    is_leaving: bool,
    /// The result of leaving the group.
    left: Option<Outcome>,
    /// The time that a call may take, for the calls that come without one of their own.
    timeout: Duration,
    /// The thread in which a call runs, and the functions that learn of its end.
    caller: Option<ThreadId>,
}

impl State {
    /// Whether a wait in this thread would be within a call of the communicator.
    fn is_within(&self, thread: ThreadId) -> bool {
        self.caller == Some(thread)
    }
}

/// The end of an attempt to run a call in the thread that makes it.
pub(crate) enum Attempt<W> {
    Ran(Outcome),
    /// Other calls come first.
    Busy(W),
}

impl CallQueue {
    /// Takes a communicator over. It stays open until [`close`](Self::close), at the latest at the
    /// end of the process.
    pub(crate) fn new(communicator: Communicator) -> Arc<Self> {
        let queue = Arc::new(Self {
            rank: communicator.rank(),
            size: communicator.size(),
            name: communicator.group_name().map(str::to_owned),
            aborter: communicator.aborter(),
            forks: FORKS.load(Ordering::Relaxed),
            state: Mutex::new(State {
                timeout: communicator.timeout(),
                idle: Some(Box::new(communicator)),
                queue: VecDeque::new(),
                has_worker: false,
                is_closed: false,
                is_leaving: false,
                left: None,
                caller: None,
            }),
            changed: Condvar::new(),
        });
        let mut open = lock(&OPEN);
        // A child of fork can do nothing with the communicators of its parent.
        open.retain(|other| other.forks == queue.forks);
        open.push(Arc::clone(&queue));
        drop(open);
        queue
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Runs `work` in this thread, unless other calls come first. It may have its own `timeout`.
    pub(crate) fn try_now<W>(&self, timeout: Option<Duration>, work: W) -> Attempt<W>
    where
        W: FnOnce(&mut Communicator) -> Result<(), Error>,
    {
        if self.is_forked() {
            return Attempt::Ran(Err(Fault::Forked));
        }
        let mut state = lock(&self.state);
        if state.is_closed {
            return Attempt::Ran(Err(Fault::Closed));
        }
        let caller = thread::current().id();
        if state.is_within(caller) {
            return Attempt::Ran(Err(Fault::Nested));
        }
        if !state.queue.is_empty() {
            return Attempt::Busy(work);
        }
        let Some(mut communicator) = state.idle.take() else { return Attempt::Busy(work) };
        state.caller = Some(caller);
        let timeout = timeout.unwrap_or(state.timeout);
        drop(state);
        let outcome = perform(&mut communicator, timeout, work);
        let mut state = lock(&self.state);
        (state.idle, state.caller) = (Some(communicator), None);
        let others_wait = state.has_worker && (!state.queue.is_empty() || state.is_closed);
        drop(state);
        if others_wait {
            self.changed.notify_all();
        }
        Attempt::Ran(outcome)
    }

    /// Leaves `work` to the worker, after all calls before it. It may have a `timeout` of its own.
    pub(crate) fn submit<W>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        work: W,
        ticket: &Arc<Ticket>,
    ) -> Outcome
    where
        W: FnOnce(&mut Communicator) -> Result<(), Error> + Send + 'static,
    {
        if self.is_forked() {
            return Err(Fault::Forked);
        }
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Fault::Closed);
        }
        self.employ(&mut state)?;
        let (ticket, timeout) = (Arc::clone(ticket), timeout.unwrap_or(state.timeout));
        let work =
            Box::new(move |communicator: &mut Communicator| perform(communicator, timeout, work));
        state.queue.push_back((work, ticket));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Refuses a wait for calls after the one that runs in this thread.
    pub(crate) fn check_nested(&self) -> Outcome {
        if self.is_forked() {
            // A thread of the parent may have held the lock.
            return Err(Fault::Forked);
        }
        let is_within = lock(&self.state).is_within(thread::current().id());
        if is_within { Err(Fault::Nested) } else { Ok(()) }
    }

    /// Starts the worker, if there is none.
    fn employ(self: &Arc<Self>, state: &mut State) -> Outcome {
        if !state.has_worker {
            let queue = Arc::clone(self);
            let worker = thread::Builder::new().name("ringfold".to_owned());
            let started = worker.spawn(move || queue.work());
            started.map_err(|error| Fault::Defect(format!("no thread for calls: {error}")))?;
            state.has_worker = true;
        }
        Ok(())
    }

    /// Runs the calls of the queue. At the end it leaves the group.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            let is_due = !state.queue.is_empty() || state.is_closed;
            let Some(mut communicator) = state.idle.take_if(|_| is_due) else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some((work, ticket)) = state.queue.pop_front() else {
                state.is_leaving = true;
                drop(state);
                self.changed.notify_all();
                let left = communicator.leave().map_err(Fault::from);
                lock(&OPEN).retain(|open| !std::ptr::eq(&**open, self));
                lock(&self.state).left = Some(left);
                self.changed.notify_all();
                return;
            };
            let worker = Some(thread::current().id());
            state.caller = worker;
            drop(state);
            let outcome = work(&mut communicator);
            // A thread that finds the call done also finds the communicator idle, unless functions
            // learn of the end first.
            let mut after = lock(&self.state);
            let callbacks = ticket.complete(outcome);
            let mut communicator = Some(communicator);
            if callbacks.is_empty() {
                (after.idle, after.caller) = (communicator.take(), None);
            }
            drop(after);
            callbacks.into_iter().for_each(|callback| callback());
            ticket.release_soon();
            state = lock(&self.state);
            if communicator.is_some() {
                (state.idle, state.caller) = (communicator, None);
            }
        }
    }

    /// Sets the time that a call may take, for the calls that are made from here on.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> Outcome {
        if self.is_forked() {
            return Err(Fault::Forked);
        }
        lock(&self.state).timeout = timeout;
        Ok(())
    }

    /// Takes no more calls, and leaves the group after those of the queue. Does not wait.
    pub(crate) fn close(self: &Arc<Self>) {
        if self.is_forked() {
            return;
        }
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        state.is_closed = true;
        let employed = self.employ(&mut state);
        let idle = if employed.is_err() { state.idle.take() } else { None };
        drop(state);
        self.changed.notify_all();
        if let Some(communicator) = idle {
            let left = communicator.leave().map_err(Fault::from);
            lock(&self.state).left = Some(left);
        }
    }

    /// Waits until all calls have ended after [`close`](Self::close), for at most `limit`. Returns
    /// `None` if they have not.
    pub(crate) fn ended_within(&self, limit: Duration) -> Option<()> {
        let is_busy = |it: &mut State| !it.is_leaving && it.left.is_none();
        let waited = self.changed.wait_timeout_while(lock(&self.state), limit, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!is_busy(&mut state)).then_some(())
    }

    /// Waits until the communicator has left its group, for at most `limit`. `None` if it has not.
    pub(crate) fn left_within(&self, limit: Duration) -> Option<Outcome> {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, limit, |it| it.left.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.left.clone()
    }
}

/// All communicators that have not left their groups.
pub(crate) fn open_queues() -> Vec<Arc<CallQueue>> {
    // Those of the parent have another number of forks, and close at once.
    lock(&OPEN).iter().filter(|queue| !queue.is_forked()).cloned().collect()
}

/// Releases no more memory of calls, because the interpreter ends. The caller must not hold the
/// GIL.
pub(crate) fn end_release() {
    release::end(FORKS.load(Ordering::Relaxed));
}

/// Runs a call. A panic has made the communicator fail, so it can be used again.
fn perform<W>(communicator: &mut Communicator, timeout: Duration, work: W) -> Outcome
where
    W: FnOnce(&mut Communicator) -> Result<(), Error>,
{
    communicator.set_timeout(timeout);
    match catch_unwind(AssertUnwindSafe(|| work(communicator))) {
        Ok(outcome) => outcome.map_err(Fault::from),
        Err(panic) => {
            let text = text_of(&*panic).unwrap_or("a panic without a text");
            Err(Fault::Defect(text.to_owned()))
        }
    }
}

/// A function that learns of the end of a call.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// The end of a call that the worker runs.
pub(crate) struct Ticket {
    /// The communicator of the call.
    pub(crate) queue: Arc<CallQueue>,
    state: Mutex<TicketState>,
    done: Condvar,
}

struct TicketState {
    outcome: Option<Outcome>,
    callbacks: Vec<Callback>,
    /// Memory and objects of the call.
    kept: Option<Box<dyn Any + Send>>,
}

impl Ticket {
    /// A ticket that keeps `kept` at least until the end of the call.
    pub(crate) fn new(queue: &Arc<CallQueue>, kept: Box<dyn Any + Send>) -> Arc<Self> {
        let (outcome, callbacks, kept) = (None, Vec::new(), Some(kept));
        let state = Mutex::new(TicketState { outcome, callbacks, kept });
        Arc::new(Self { queue: Arc::clone(queue), state, done: Condvar::new() })
    }

    /// Sets the outcome. Returns the functions that learn of it.
    fn complete(&self, outcome: Outcome) -> Vec<Callback> {
        let mut state = lock(&self.state);
        state.outcome = Some(outcome);
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        self.done.notify_all();
        callbacks
    }

    /// Has the memory and objects of the call freed soon, if nobody has taken them.
    fn release_soon(self: &Arc<Self>) {
        if lock(&self.state).kept.is_some() {
            let ticket = Arc::clone(self);
            release::soon(self.queue.forks, Box::new(move || ticket.release()));
        }
    }

    /// The memory and objects of the call, if it is done. A thread with the GIL must drop
    /// them.
    pub(crate) fn release(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = lock(&self.state);
        if state.outcome.is_some() { state.kept.take() } else { None }
    }

    /// The outcome, if the call is done.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.state).outcome.clone()
    }

    /// Waits for the end of the call, at most until `deadline`, or for `slice`.
    pub(crate) fn wait(&self, deadline: Option<Instant>, slice: Duration) -> Option<Outcome> {
        let left = deadline.map_or(slice, |it| it.saturating_duration_since(Instant::now()));
        let state = lock(&self.state);
        let waited =
            self.done.wait_timeout_while(state, left.min(slice), |it| it.outcome.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.outcome.clone()
    }

    /// Calls `callback` at the end of the call. Returns it if the call is done.
    pub(crate) fn at_end(&self, callback: Callback) -> Option<Callback> {
        let mut state = lock(&self.state);
        if state.outcome.is_some() {
            return Some(callback);
        }
        state.callbacks.push(callback);
        None
    }
}
