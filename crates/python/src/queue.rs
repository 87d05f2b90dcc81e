//! The calls of one communicator, in their order.
//!
//! A call runs or starts in the thread that makes it, if no other call runs or waits. Otherwise it
//! waits in the queue for the communicator: a start for the thread that has it, and a blocking call
//! for a worker thread. Nothing here touches Python; `ended` frees the memory of calls that have
//! ended.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ringfold::{Aborter, Communicator, Error, Message, Rank, Request};
use ringfold_foreign::{lock, text_of};

use crate::ended::{self, Callback, Ended, Ends};

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

/// A call that waits for the communicator.
enum Next {
    /// A call that any thread with the communicator starts.
    Start(Box<dyn FnOnce(&mut Communicator) + Send>),
    /// A call that the worker performs, and the ticket that gets its outcome.
    Work(Box<dyn FnOnce(&mut Communicator) -> Outcome + Send>, Arc<Ticket>),
}

/// A communicator and its calls.
pub(crate) struct CallQueue {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) name: Option<String>,
    /// The lasting identity of each rank.
    pub(crate) identities: Vec<u32>,
    /// How often the ranks have shrunk.
    pub(crate) epoch: u64,
    pub(crate) aborter: Aborter,
    pub(crate) ends: Arc<Ends>,
    /// The calls that have started and not ended.
    unfinished: AtomicUsize,
    forks: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The communicator while no call uses it.
    idle: Option<Box<Communicator>>,
    queue: VecDeque<Next>,
    has_worker: bool,
    /// Whether no calls may come any more.
    is_closed: bool,
    /// Whether all calls have ended, and the communicator leaves its group.
    is_leaving: bool,
    /// The result of leaving the group.
    left: Option<Outcome>,
    /// The time that a call may take, for the calls that come without one of their own.
    timeout: Duration,
    /// The thread in which a call runs.
    caller: Option<ThreadId>,
}

impl State {
    /// Takes the communicator for this thread, if no other call uses it or waits for it. The time
    /// that a call without one of its own may take comes with it.
    fn take_idle(&mut self) -> Option<(Box<Communicator>, Duration)> {
        let communicator = self.idle.take_if(|_| self.queue.is_empty())?;
        self.caller = Some(thread::current().id());
        Some((communicator, self.timeout))
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
        let identity = |at| communicator.identity(Rank::at(at)).0;
        let identities = (0..communicator.size()).map(identity).collect();
        let queue = Arc::new(Self {
            rank: communicator.rank(),
            size: communicator.size(),
            name: communicator.group_name().map(str::to_owned),
            identities,
            epoch: communicator.epoch(),
            aborter: communicator.aborter(),
            ends: Arc::default(),
            unfinished: AtomicUsize::new(0),
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

    /// Whether a wait in this thread would be within a call of the communicator.
    fn is_within(&self, state: &State) -> bool {
        state.caller == Some(thread::current().id()) || self.ends.is_called_here()
    }

    /// The state, for a call to come.
    fn open(&self) -> Result<MutexGuard<'_, State>, Fault> {
        if self.is_forked() {
            return Err(Fault::Forked);
        }
        let state = lock(&self.state);
        if state.is_closed { Err(Fault::Closed) } else { Ok(state) }
    }

    /// Runs `work` in this thread, unless other calls come first. It may have its own `timeout`.
    pub(crate) fn try_now<W>(&self, timeout: Option<Duration>, work: W) -> Attempt<W>
    where
        W: FnOnce(&mut Communicator) -> Result<(), Error>,
    {
        let mut state = match self.open() {
            Ok(state) => state,
            Err(fault) => return Attempt::Ran(Err(fault)),
        };
        if self.is_within(&state) {
            return Attempt::Ran(Err(Fault::Nested));
        }
        let Some((mut communicator, usual)) = state.take_idle() else { return Attempt::Busy(work) };
        drop(state);
        let outcome = perform(&mut communicator, timeout.unwrap_or(usual), work);
        self.give_back(communicator);
        Attempt::Ran(outcome)
    }

    /// Starts a call in this thread, or later if other calls come first. It may have its own
    /// `timeout`. `start` starts it, and `ticket` gets its outcome. Does not wait.
    pub(crate) fn start<S>(
        &self,
        timeout: Option<Duration>,
        ticket: &Arc<Ticket>,
        start: S,
    ) -> Outcome
    where
        S: FnOnce(&mut Communicator, &mut Requests) -> Result<(), Error> + Send + 'static,
    {
        let mut state = self.open()?;
        if let Some((mut communicator, usual)) = state.take_idle() {
            drop(state);
            ticket.start(&mut communicator, timeout.unwrap_or(usual), start);
            self.give_back(communicator);
        } else {
            let (timeout, ticket) = (timeout.unwrap_or(state.timeout), Arc::clone(ticket));
            let start = move |it: &mut Communicator| ticket.start(it, timeout, start);
            state.queue.push_back(Next::Start(Box::new(start)));
        }
        Ok(())
    }

    /// Gives the communicator back after a call. First starts the calls that came meanwhile.
    fn give_back(&self, mut communicator: Box<Communicator>) {
        let mut state = lock(&self.state);
        while let Some(Next::Start(start)) =
            state.queue.pop_front_if(|next| matches!(next, Next::Start(_)))
        {
            drop(state);
            start(&mut communicator);
            state = lock(&self.state);
        }
        (state.idle, state.caller) = (Some(communicator), None);
        let others_wait = state.has_worker && (!state.queue.is_empty() || state.is_closed);
        drop(state);
        if others_wait {
            self.changed.notify_all();
        }
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
        let mut state = self.open()?;
        self.employ(&mut state)?;
        let (ticket, timeout) = (Arc::clone(ticket), timeout.unwrap_or(state.timeout));
        let work =
            Box::new(move |communicator: &mut Communicator| perform(communicator, timeout, work));
        state.queue.push_back(Next::Work(work, ticket));
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
        let is_within = self.is_within(&lock(&self.state));
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
            let Some(next) = state.queue.pop_front() else { break self.leave(state, communicator) };
            state.caller = Some(thread::current().id());
            drop(state);
            let ended = match next {
                Next::Start(start) => {
                    start(&mut communicator);
                    None
                }
                Next::Work(work, ticket) => Some((work(&mut communicator), ticket)),
            };
            // A thread that finds the call done also finds the communicator idle.
            state = lock(&self.state);
            (state.idle, state.caller) = (Some(communicator), None);
            if let Some((outcome, ticket)) = ended {
                ticket.complete(outcome);
            }
        }
    }

    /// Leaves the group, after the calls that were started.
    fn leave(&self, state: MutexGuard<'_, State>, mut communicator: Box<Communicator>) {
        drop(state);
        // This waits for them.
        communicator.set_wait_hook(None);
        lock(&self.state).is_leaving = true;
        self.changed.notify_all();
        let left = communicator.leave().map_err(Fault::from);
        lock(&OPEN).retain(|open| !std::ptr::eq(&**open, self));
        lock(&self.state).left = Some(left);
        self.changed.notify_all();
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

    /// Whether all calls that have started have ended. Waits for it a little.
    pub(crate) fn is_finished(&self) -> bool {
        if self.unfinished.load(Ordering::Relaxed) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        self.unfinished.load(Ordering::Relaxed) == 0
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

/// Ends the thread that calls functions and releases memory, because the interpreter ends. Waits
/// for it, at most for `limit`. The caller must not hold the GIL.
pub(crate) fn end_functions(limit: Duration) {
    ended::end(FORKS.load(Ordering::Relaxed), limit);
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

/// The end of a call in the background.
pub(crate) struct Ticket {
    /// The communicator of the call.
    pub(crate) queue: Arc<CallQueue>,
    state: Mutex<TicketState>,
    /// Signals that the call has started, or that it has ended without a start.
    changed: Condvar,
}

#[derive(Default)]
struct TicketState {
    has_started: bool,
    /// Whether the call is among the unfinished ones of its communicator.
    is_counted: bool,
    /// The requests of the call that have not ended.
    requests: Vec<Arc<Request<()>>>,
    /// The message of a receive that has ended.
    message: Option<Message>,
    /// The first error.
    error: Option<Fault>,
    outcome: Option<Outcome>,
    callbacks: Vec<Callback>,
    /// Memory and objects of the call.
    kept: Option<Box<dyn Any + Send>>,
}

impl TicketState {
    /// The outcome, if the call is done.
    fn outcome(&mut self) -> Option<&Outcome> {
        if self.outcome.is_none() && self.has_started {
            let Self { requests, message, error, .. } = self;
            requests.retain(|request| match request.take_result() {
                None => true,
                Some(Ok(received)) => {
                    *message = received.or(*message);
                    false
                }
                Some(Err(failed)) => {
                    error.get_or_insert(Fault::Call(failed));
                    false
                }
            });
            if requests.is_empty() {
                self.outcome = Some(error.take().map_or(Ok(()), Err));
            }
        }
        self.outcome.as_ref()
    }
}

/// The requests of a call that starts.
pub(crate) type Requests = Vec<Request<()>>;

impl Ticket {
    pub(crate) fn new(queue: &Arc<CallQueue>) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { queue: Arc::clone(queue), state, changed })
    }

    /// Starts the call.
    fn start(
        self: &Arc<Self>,
        communicator: &mut Communicator,
        timeout: Duration,
        start: impl FnOnce(&mut Communicator, &mut Requests) -> Result<(), Error>,
    ) {
        let (mut requests, waker) = (Vec::new(), Waker::from(Arc::clone(self)));
        let started = perform(communicator, timeout, |it| start(it, &mut requests));
        // A thread that ends the call now waits for the lock.
        let mut state = lock(&self.state);
        state.error = started.err();
        for request in requests {
            request.wake_at_end(&waker);
            state.requests.push(Arc::new(request));
        }
        state.has_started = true;
        let has_ended = state.outcome().is_some();
        state.is_counted = !has_ended;
        self.queue.unfinished.fetch_add(state.is_counted.into(), Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        if has_ended {
            self.tell();
        }
    }

    /// Keeps memory and objects of the call until its end. Returns them if the call is done.
    pub(crate) fn keep(&self, kept: Box<dyn Any + Send>) -> Option<Box<dyn Any + Send>> {
        let mut state = lock(&self.state);
        if state.outcome().is_some() {
            return Some(kept);
        }
        state.kept = Some(kept);
        None
    }

    /// Sets the outcome of a call that has no request.
    fn complete(self: &Arc<Self>, outcome: Outcome) {
        lock(&self.state).outcome = Some(outcome);
        self.changed.notify_all();
        self.tell();
    }

    /// Has functions learn of the end, and memory and objects released.
    fn tell(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let callbacks = std::mem::take(&mut state.callbacks);
        let has_news = !callbacks.is_empty() || state.kept.is_some();
        drop(state);
        if has_news {
            let ticket = Arc::clone(self);
            let (of, take) = (Arc::clone(&self.queue.ends), Box::new(move || ticket.release()));
            ended::tell(self.queue.forks, Ended { of, callbacks, take });
        }
    }

    /// The memory and objects of the call, if it is done. A thread with the GIL must drop
    /// them.
    pub(crate) fn release(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = lock(&self.state);
        if state.outcome().is_some() { state.kept.take() } else { None }
    }

    /// The outcome, if the call is done.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.state).outcome().cloned()
    }

    /// The message of a receive that is done.
    pub(crate) fn message(&self) -> Option<Message> {
        let mut state = lock(&self.state);
        state.outcome()?;
        state.message
    }

    /// Advances the call, unless another thread does. Returns the outcome, if the call is done.
    pub(crate) fn test(&self) -> Option<Outcome> {
        let requests = lock(&self.state).requests.clone();
        let have_ended = requests.iter().all(|request| request.test());
        if have_ended { self.outcome() } else { None }
    }

    /// Waits for the end of the call, at most until `deadline`, or for `slice`. This thread
    /// advances the call, once that has started.
    pub(crate) fn wait(&self, deadline: Option<Instant>, slice: Duration) -> Option<Outcome> {
        let until = Instant::now() + slice;
        let until = deadline.map_or(until, |it| it.min(until));
        let left = || until.saturating_duration_since(Instant::now());
        let is_waiting = |it: &mut TicketState| !it.has_started && it.outcome.is_none();
        let waited = self.changed.wait_timeout_while(lock(&self.state), left(), is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let requests = state.requests.clone();
        drop(state);
        for request in requests {
            request.wait_for(left());
        }
        self.outcome()
    }

    /// Calls `callback` at the end of the call, behind those of calls before it. Returns it if it
    /// may be called at once.
    pub(crate) fn at_end(self: &Arc<Self>, callback: Callback) -> Option<Callback> {
        let mut state = lock(&self.state);
        let has_ended = state.outcome().is_some();
        if has_ended && self.queue.ends.are_heard() {
            return Some(callback);
        }
        state.callbacks.push(callback);
        drop(state);
        if has_ended {
            self.tell();
        }
        None
    }
}

impl Wake for Ticket {
    /// The call has ended in this thread, which has the communicator.
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        if state.outcome().is_some() {
            let was_counted = std::mem::take(&mut state.is_counted);
            self.queue.unfinished.fetch_sub(was_counted.into(), Ordering::Relaxed);
            drop(state);
            self.tell();
        }
    }
}
