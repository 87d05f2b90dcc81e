//! The slot in which an engine lies while started calls are under way.
//!
//! Whoever advances the calls takes the engine out, and puts it back. An engine in its slot is
//! armed: peers ring its descriptors, on which the helper thread sleeps. No thread holds a lock
//! while it advances calls.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ringfold_collectives::Progress;
use ringfold_transport::{Process, Waker};

use super::helper;
use super::job::{Job, Ticket};
use crate::engine::Engine;
use crate::error::Error;

/// Passes over the calls before a thread puts the engine back, though more can move.
const PASSES_MAX: usize = 64;

/// The longest sleep of a waiting thread, which may miss no wake-up in any case.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The place of a communicator's engine while calls are under way.
pub(crate) struct Slot {
    process: Process,
    state: Mutex<State>,
    /// Signals that the engine is back, or that a call has ended.
    changed: Condvar,
    has_new: AtomicBool,
    /// The threads that wait for the engine.
    waiting: AtomicUsize,
    /// Wakes the thread that has the engine and parks. `None` if the system has no descriptor.
    kick: OnceLock<Option<Waker>>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    engine: Option<Box<Engine>>,
    /// Calls that were started while another thread had the engine.
    new: VecDeque<Job>,
    /// When the engine must be looked after at the latest, if it is here and has calls.
    due: Option<Instant>,
}

impl Slot {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            process: Process::this(),
            state: Mutex::default(),
            changed: Condvar::new(),
            has_new: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            kick: OnceLock::new(),
        })
    }

    /// Whether this process was forked from the one that has the engine.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_this()
    }

    /// The descriptor that wakes the thread that has the engine.
    pub(crate) fn kick(&self) -> Option<BorrowedFd<'_>> {
        let kick = self.kick.get()?.as_ref()?;
        kick.clear();
        if self.has_new() {
            kick.wake();
        }
        Some(kick.as_fd())
    }

    pub(crate) fn has_new(&self) -> bool {
        self.has_new.load(Ordering::Acquire)
    }

    pub(crate) fn take_new(&self) -> VecDeque<Job> {
        let mut state = self.state();
        self.has_new.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.new)
    }

    /// Starts a call while the engine is not with its communicator.
    pub(crate) fn start(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        if let Some(mut engine) = state.engine.take() {
            drop(state);
            engine.jobs.push_back(job);
            let mut held = Held::new(self, engine);
            held.pass();
            held.put_back();
            return;
        }
        state.new.push_back(job);
        self.has_new.store(true, Ordering::Release);
        drop(state);
        if let Some(Some(kick)) = self.kick.get() {
            kick.wake();
        }
    }

    /// Lays an engine with calls in the slot.
    pub(crate) fn put(self: &Arc<Self>, mut engine: Box<Engine>) {
        self.kick.get_or_init(|| Waker::new().ok());
        if !engine.is_watched {
            engine.is_watched = helper::watch(self, &engine);
        }
        Held::new(self, engine).put_back();
    }

    /// Waits for the engine, and takes it. The threads that have it put it back soon, or when their
    /// calls have ended.
    pub(crate) fn take(self: &Arc<Self>) -> Held {
        let waiting = Waiting::new(self);
        let mut state = self.state();
        loop {
            if let Some(engine) = state.engine.take() {
                drop((state, waiting));
                return Held::new(self, engine);
            }
            state = self.sleep(state);
        }
    }

    /// Looks at the engine. Waits while another thread has it.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        let _waiting = Waiting::new(self);
        let mut state = self.state();
        loop {
            if let Some(engine) = &state.engine {
                return look(engine);
            }
            state = self.sleep(state);
        }
    }

    /// Fails if the engine is here and its communicator has failed.
    pub(crate) fn check_failure(&self) -> Result<(), Error> {
        self.state().engine.as_ref().map_or(Ok(()), |engine| engine.health.check())
    }

    /// Takes the engine, if it is here and has calls.
    fn try_take(self: &Arc<Self>) -> Option<Held> {
        let mut state = self.state();
        let engine = state.engine.take_if(|engine| !engine.jobs.is_empty())?;
        drop(state);
        Some(Held::new(self, engine))
    }

    /// Blocks until the call has ended. This thread drives the calls if no other does.
    pub(crate) fn wait_for(self: &Arc<Self>, ticket: &Ticket) {
        let waiting = Waiting::new(self);
        let mut state = self.state();
        while !ticket.has_ended() {
            if let Some(engine) = state.engine.take() {
                drop((state, waiting));
                let mut held = Held::new(self, engine);
                held.engine().drive(|| ticket.has_ended());
                return held.put_back();
            }
            state = self.sleep(state);
        }
    }

    /// Advances the calls, unless another thread does.
    pub(crate) fn advance(self: &Arc<Self>) {
        if let Some(mut held) = self.try_take() {
            held.pass();
            held.put_back();
        }
    }

    /// When the helper must look after the engine at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state();
        state.due.filter(|_| state.engine.is_some())
    }

    /// Wakes the threads that wait for a call or for the engine.
    pub(crate) fn wake_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.state());
            self.changed.notify_all();
        }
    }

    fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let woken = self.changed.wait_timeout(state, SLEEP_MAX);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A thread that waits for the engine or for a call.
struct Waiting<'s>(&'s Slot);

impl<'s> Waiting<'s> {
    fn new(slot: &'s Slot) -> Self {
        slot.waiting.fetch_add(1, Ordering::SeqCst);
        Self(slot)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An engine that a thread has taken out of its slot. A panic puts it back.
pub(crate) struct Held {
    slot: Arc<Slot>,
    engine: Option<Box<Engine>>,
}

impl Held {
    fn new(slot: &Arc<Slot>, mut engine: Box<Engine>) -> Self {
        engine.disarm();
        Self { slot: Arc::clone(slot), engine: Some(engine) }
    }

    pub(crate) fn engine(&mut self) -> &mut Engine {
        let Some(engine) = &mut self.engine else { unreachable!("it is held") };
        engine
    }

    /// Keeps the engine with its communicator.
    pub(crate) fn keep(mut self) -> Box<Engine> {
        let Some(engine) = self.engine.take() else { unreachable!("it is held") };
        engine
    }

    /// Advances the calls as long as something moves, for a while. Never waits.
    fn pass(&mut self) {
        let slot = Arc::clone(&self.slot);
        let engine = self.engine();
        for _ in 0..PASSES_MAX {
            engine.take_new();
            match engine.advance() {
                Progress::Done => return,
                Progress::Idle if !engine.poll() => return,
                _ if slot.is_wanted() => return,
                _ => {}
            }
        }
    }

    /// Puts the engine back. Peers wake the helper thread from then on, if there are calls.
    fn put_back(mut self) {
        let slot = Arc::clone(&self.slot);
        loop {
            let engine = self.engine();
            engine.take_new();
            let has_calls = !engine.jobs.is_empty();
            let wait = if has_calls { engine.arm() } else { Duration::ZERO };
            let mut state = slot.state();
            if !state.new.is_empty() {
                drop(state);
                self.engine().disarm();
                self.pass();
                continue;
            }
            state.due = has_calls.then(|| Instant::now() + wait);
            state.engine = self.engine.take();
            drop(state);
            slot.wake_waiting();
            if has_calls && wait < SLEEP_MAX {
                helper::look_sooner();
            }
            return;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            // A call panicked, and with it all calls of the engine have failed.
            self.slot.state().engine = Some(engine);
            self.slot.wake_waiting();
        }
    }
}
