//! Drives started calls: takes the engine of a communicator out of its slot, advances its calls,
//! and puts it back.

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_collectives::Progress;

use super::callers;
use super::job::Job;
use super::progress::{self, Attended};
use super::slot::Slot;
use crate::backoff::PARK_MAX;
use crate::config::CallProgress;
use crate::engine::Engine;
use crate::error::Error;
use crate::messages::End;
use crate::ticket::Ticket;

/// Passes over the calls before a thread puts the engine back, though more can move.
const PASSES_MAX: usize = 64;

impl Slot<Engine> {
    /// Starts a call while the engine is not with its communicator.
    pub(crate) fn start(self: &Arc<Self>, started: Job) {
        let mut state = self.state();
        if let Some(engine) = state.engine.take() {
            drop(state);
            let mut held = Held::new(self, engine);
            held.engine().add(started);
            held.engine().guarded_started(Engine::advance_new);
            held.put_back();
            return;
        }
        self.leave(state, started);
    }

    /// Lays an engine with calls in the slot.
    pub(crate) fn put(self: &Arc<Self>, engine: Box<Engine>) {
        self.prepare();
        Held::new(self, engine).put_back();
    }

    /// Waits for the engine, and takes it. The threads that have it put it back soon, or when their
    /// calls have ended.
    pub(crate) fn take(self: &Arc<Self>) -> Held {
        let waiting = (self.want(), self.recall());
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
        let _waiting = (self.want(), self.recall());
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
        let engine = state.engine.take_if(|engine| engine.has_work())?;
        drop(state);
        Some(Held::new(self, engine))
    }

    /// Blocks until the call has ended, or `until` has passed. This thread drives the calls if no
    /// other does.
    pub(crate) fn wait_for(self: &Arc<Self>, ticket: &Ticket, until: Option<Instant>) {
        let is_over = || ticket.has_ended() || until.is_some_and(|it| Instant::now() >= it);
        let mut waiting = self.want();
        let mut state = self.state();
        while !is_over() {
            // A thread that takes the engine for the communicator comes first.
            if let Some(engine) = state.engine.take_if(|_| !self.is_recalled()) {
                drop((state, waiting));
                let mut held = Held::new(self, engine);
                let is_own = |end: &End| matches!(end, End::Started(it) if ptr::eq(&**it, ticket));
                held.engine().drive(is_own, |engine| {
                    if engine.progress == CallProgress::Caller {
                        callers::advance_others(self);
                    }
                    is_over() || self.is_recalled()
                });
                held.put_back();
                waiting = self.want();
                state = self.state();
            } else {
                state = self.sleep(state);
            }
        }
        drop((state, waiting));
    }

    /// Advances the calls, unless another thread does.
    pub(crate) fn advance(self: &Arc<Self>) {
        if let Some(mut held) = self.try_take() {
            held.pass();
            held.put_back();
        }
    }
}

impl Engine {
    /// Advances the calls after a start. Peers often start a short call at the same time, and
    /// answer within a few rounds. So a call that is alone is tried as often as a blocking one is
    /// before its thread leaves the core.
    pub(crate) fn advance_new(&mut self) {
        let is_alone = self.jobs.len() == 1;
        let mut rounds = if is_alone { self.core.wait_policy.early_spins() } else { 0 };
        while self.advance() != Progress::Done && rounds > 0 {
            rounds -= 1;
            std::hint::spin_loop();
        }
    }
}

impl Attended for Slot<Engine> {
    fn attend(self: Arc<Self>) {
        self.advance();
    }

    fn due(&self) -> Option<Instant> {
        let state = self.state();
        state.due.filter(|_| state.engine.is_some())
    }
}

/// An engine that a thread has taken out of its slot. A panic puts it back.
pub(crate) struct Held {
    slot: Arc<Slot<Engine>>,
    engine: Option<Box<Engine>>,
}

impl Held {
    fn new(slot: &Arc<Slot<Engine>>, mut engine: Box<Engine>) -> Self {
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
        engine.guarded_started(|engine| {
            for _ in 0..PASSES_MAX {
                engine.take_new();
                match engine.advance() {
                    Progress::Done => return,
                    Progress::Idle if !engine.poll() => return,
                    _ if slot.is_wanted() => return,
                    _ => {}
                }
            }
        });
    }

    /// Puts the engine back. Peers wake the helper thread from then on, if there are calls.
    fn put_back(mut self) {
        let slot = Arc::clone(&self.slot);
        let mut is_moving = false;
        loop {
            let engine = self.engine();
            engine.take_new();
            let wait = if engine.has_work() {
                engine.guarded_started(Engine::arm)
            } else {
                Duration::ZERO
            };
            let has_calls = engine.has_work();
            if has_calls && wait.is_zero() && !is_moving && !slot.is_wanted() {
                is_moving = true;
                engine.disarm();
                self.pass();
                continue;
            }
            let mut state = slot.state();
            if !state.new.is_empty() {
                drop(state);
                self.engine().disarm();
                self.pass();
                continue;
            }
            state.due = has_calls.then(|| Instant::now() + wait);
            if has_calls {
                // The helper waits for the lock, so it finds the engine.
                let calls: Arc<dyn Attended> = Arc::<Slot<Engine>>::clone(&slot);
                let engine = self.engine();
                let cpus = match &engine.progress {
                    CallProgress::Caller => None,
                    CallProgress::Thread => Some(None),
                    CallProgress::Cpus(cpus) => Some(Some(cpus)),
                };
                match cpus {
                    None => callers::add(&slot),
                    Some(cpus) => {
                        let (key, fds) = (engine.watched_by, engine.wake_fds());
                        engine.watched_by = progress::watch(key, &calls, fds, cpus);
                    }
                }
            }
            state.engine = self.engine.take();
            drop(state);
            slot.wake_waiting();
            if has_calls && wait < PARK_MAX {
                progress::look_sooner();
            }
            return;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            // A call panicked, which has failed all calls. Those that came since fail too.
            engine.take_new();
            engine.end_failed();
            let mut state = self.slot.state();
            state.due = engine.has_work().then(Instant::now);
            state.engine = Some(engine);
            drop(state);
            self.slot.wake_waiting();
        }
    }
}
