//! The slot in which an engine lies while started calls are under way.
//!
//! A thread that advances the calls takes the engine out, and puts it back. An engine in its slot
//! is armed: peers ring its descriptors, on which the helper thread sleeps. No thread holds a lock
//! while it advances calls.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use ringfold_transport::{Process, Waker};

use super::job::Job;
use crate::backoff::PARK_MAX;

/// The place of a communicator's engine while calls are under way.
pub(crate) struct Slot<E> {
    process: Process,
    state: Mutex<State<E>>,
    /// Signals that the engine is back, or that a call has ended.
    changed: Condvar,
    has_new: AtomicBool,
    /// The threads that wait for the engine or for a call.
    waiting: AtomicUsize,
    /// The threads among them that take the engine for its communicator.
    recalling: AtomicUsize,
    /// Wakes the thread that has the engine and parks. `None` if the system has no descriptor.
    kick: OnceLock<Option<Waker>>,
}

impl<E> fmt::Debug for Slot<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

pub(super) struct State<E> {
    pub(super) engine: Option<Box<E>>,
    /// Calls that were started while another thread had the engine.
    pub(super) new: VecDeque<Job>,
    /// When the engine must be looked after at the latest, if it is here and has calls.
    pub(super) due: Option<Instant>,
}

impl<E> Slot<E> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            process: Process::this(),
            state: Mutex::new(State { engine: None, new: VecDeque::new(), due: None }),
            changed: Condvar::new(),
            has_new: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            recalling: AtomicUsize::new(0),
            kick: OnceLock::new(),
        })
    }

    /// Whether this process was forked from the one that has the engine.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_this()
    }

    /// Makes the descriptor that wakes the thread that has the engine.
    pub(super) fn prepare(&self) {
        self.kick.get_or_init(|| Waker::new().ok());
    }

    /// Leaves a call to the thread that has the engine, and wakes it.
    pub(super) fn leave(&self, mut state: MutexGuard<'_, State<E>>, started: Job) {
        state.new.push_back(started);
        self.has_new.store(true, Ordering::Release);
        drop(state);
        self.wake_parked();
    }

    /// Wakes the thread that has the engine and parks.
    fn wake_parked(&self) {
        if let Some(Some(kick)) = self.kick.get() {
            kick.wake();
        }
    }

    /// The descriptor that wakes the thread that has the engine.
    pub(crate) fn kick(&self) -> Option<BorrowedFd<'_>> {
        let kick = self.kick.get()?.as_ref()?;
        kick.clear();
        if self.has_new() || self.is_recalled() {
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

    /// Wakes the threads that wait for a call or for the engine.
    pub(crate) fn wake_waiting(&self) {
        if self.is_wanted() {
            drop(self.state());
            self.changed.notify_all();
            #[cfg(test)]
            crate::interleave::notify(&self.changed);
        }
    }

    /// Whether a thread waits for the engine.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<E>> {
        #[cfg(test)]
        crate::interleave::point();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the engine is back or a call has ended, for a while at most.
    pub(super) fn sleep<'s>(&'s self, state: MutexGuard<'s, State<E>>) -> MutexGuard<'s, State<E>> {
        #[cfg(test)]
        if crate::interleave::is_on() {
            let before = crate::interleave::notified(&self.changed);
            drop(state);
            let has_changed = || crate::interleave::notified(&self.changed) != before;
            crate::interleave::block(None, has_changed);
            return self.state();
        }
        let woken = self.changed.wait_timeout(state, PARK_MAX);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Counts this thread among those that wait for the engine, until the guard is dropped.
    pub(super) fn want(&self) -> Waiting<'_> {
        Waiting::among(&self.waiting)
    }

    /// Asks the thread that waits for a call to put the engine back, until the guard is dropped.
    pub(super) fn recall(&self) -> Waiting<'_> {
        let recall = Waiting::among(&self.recalling);
        self.wake_parked();
        recall
    }

    /// Whether a thread takes the engine for its communicator.
    pub(super) fn is_recalled(&self) -> bool {
        self.recalling.load(Ordering::SeqCst) > 0
    }
}

/// A thread among those that wait.
pub(super) struct Waiting<'s>(&'s AtomicUsize);

impl<'s> Waiting<'s> {
    fn among(all: &'s AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(all)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
