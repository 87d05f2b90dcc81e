//! A model of the slot and of the ticket of started calls. `README.md` says what it is for.
#![cfg(test)]
#![forbid(unsafe_code)]

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A call is its ticket here.
#[derive(Default)]
struct Ticket {
    has_ended: AtomicBool,
    result: Mutex<Option<u32>>,
}

impl Ticket {
    fn end(&self) {
        let mut result = self.result.lock().unwrap();
        *result = Some(7);
        self.has_ended.store(true, Ordering::Release);
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct State {
    /// The calls of the engine, if it is here.
    engine: Option<Vec<Arc<Ticket>>>,
    new: Vec<Arc<Ticket>>,
}

struct Slot {
    state: Mutex<State>,
    changed: Condvar,
    has_new: AtomicBool,
    waiting: AtomicUsize,
}

impl Slot {
    fn with(jobs: Vec<Arc<Ticket>>) -> Arc<Self> {
        let state = State { engine: Some(jobs), new: Vec::new() };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            has_new: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Starts a call. The thread that has the engine takes it, if it is not here.
    fn start(&self, job: Arc<Ticket>) {
        let mut state = self.state.lock().unwrap();
        if let Some(mut jobs) = state.engine.take() {
            drop(state);
            jobs.push(job);
            return self.pass_and_put_back(jobs);
        }
        state.new.push(job);
        self.has_new.store(true, Ordering::Release);
    }

    fn take_new(&self, jobs: &mut Vec<Arc<Ticket>>) {
        if self.has_new.load(Ordering::Acquire) {
            let mut state = self.state.lock().unwrap();
            self.has_new.store(false, Ordering::Relaxed);
            jobs.append(&mut state.new);
        }
    }

    /// Ends all calls, and puts the engine back.
    fn pass_and_put_back(&self, mut jobs: Vec<Arc<Ticket>>) {
        loop {
            self.take_new(&mut jobs);
            for job in jobs.drain(..) {
                job.end();
                self.wake_waiting();
            }
            let mut state = self.state.lock().unwrap();
            if state.new.is_empty() {
                state.engine = Some(jobs);
                break;
            }
        }
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.state.lock().unwrap());
            self.changed.notify_all();
        }
    }

    /// Takes the engine, if it is here.
    fn advance(&self) {
        let engine = self.state.lock().unwrap().engine.take();
        if let Some(jobs) = engine {
            self.pass_and_put_back(jobs);
        }
    }

    fn wait_for(&self, ticket: &Ticket) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        while !ticket.has_ended() {
            if let Some(jobs) = state.engine.take() {
                drop(state);
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                self.pass_and_put_back(jobs);
                self.waiting.fetch_add(1, Ordering::SeqCst);
                state = self.state.lock().unwrap();
            } else {
                state = self.changed.wait(state).unwrap();
            }
        }
        drop(state);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A waiter sees the end of a call, and its result, though the helper ends it.
#[test]
fn a_waiter_misses_no_end() {
    loom::model(|| {
        let job = Arc::<Ticket>::default();
        let slot = Slot::with(vec![Arc::clone(&job)]);
        let helper = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.advance())
        };
        slot.wait_for(&job);
        assert_eq!(job.result.lock().unwrap().take(), Some(7));
        helper.join().unwrap();
    });
}

/// A call that is started while the helper has the engine ends, though nobody waits for it.
#[test]
fn no_call_is_left_behind() {
    loom::model(|| {
        let (first, second) = (Arc::<Ticket>::default(), Arc::<Ticket>::default());
        let slot = Slot::with(vec![Arc::clone(&first)]);
        let helper = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.advance())
        };
        slot.start(Arc::clone(&second));
        helper.join().unwrap();
        assert!(first.has_ended() && second.has_ended());
        let state = slot.state.lock().unwrap();
        assert!(state.new.is_empty() && state.engine.as_ref().is_some_and(Vec::is_empty));
    });
}

/// Two threads wait for two calls, of which one is started late. Every order with three switches
/// from a thread that could go on.
#[test]
fn two_waiters_miss_no_end() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (first, second) = (Arc::<Ticket>::default(), Arc::<Ticket>::default());
        let slot = Slot::with(vec![Arc::clone(&first)]);
        let other = {
            let (slot, first) = (Arc::clone(&slot), Arc::clone(&first));
            thread::spawn(move || slot.wait_for(&first))
        };
        slot.start(Arc::clone(&second));
        slot.wait_for(&second);
        other.join().unwrap();
    });
}
