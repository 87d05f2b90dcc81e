//! Runs the threads of a test one at a time, in an order that a seed decides.
//!
//! Each thread is an *actor*. An actor gives its turn away only at a [`point`] and where it waits.
//! It waits by [`block`], which asks a condition when other actors have run, and never a clock. If
//! no condition holds any longer, a wake-up was lost, and the run fails.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_harness::Random;

/// The longest real time without progress. Only short limits of waits take real time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Limits of waits that pass in real time. Longer ones never pass, so that they hide no lost
/// wake-up.
const SHORT: Duration = Duration::from_millis(50);

/// Turns after which a run does not end.
const TURNS_MAX: u64 = 1_000_000;

/// How often no actor may run before wake-ups need a reason.
const IDLES_MAX: usize = 100;

/// The shortest and the longest sleep while no actor may run.
const SLEEPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];

thread_local! {
    static ACTOR: RefCell<Option<Actor>> = const { RefCell::new(None) };
}

/// One thread of a run.
#[derive(Clone)]
struct Actor {
    stage: Arc<Stage>,
    me: usize,
    process: Arc<Process>,
}

/// A simulated process: the things that real processes have once.
#[derive(Default)]
pub(crate) struct Process(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Process {
    /// The thing of this process, if it has one.
    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get().map(|it| Arc::clone(it).downcast().unwrap())
    }

    /// Gives this process its thing.
    pub(crate) fn set<T: Send + Sync + 'static>(&self, it: &Arc<T>) {
        let it: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(it);
        assert!(self.0.set(it).is_ok(), "a process has it once");
    }
}

/// The simulated process of this thread. `None` outside of runs.
pub(crate) fn process() -> Option<Arc<Process>> {
    ACTOR.with_borrow(|actor| actor.as_ref().map(|actor| Arc::clone(&actor.process)))
}

/// Whether this thread is an actor.
pub(crate) fn is_on() -> bool {
    ACTOR.with_borrow(Option::is_some)
}

/// Another actor may run here.
pub(crate) fn point() {
    if let Some(actor) = actor() {
        actor.stage.pass(actor.me, false);
    }
}

/// Something has changed that actors of another process may wait for. A run is only faster by that.
pub(crate) fn changed(process: usize) {
    if let Some(actor) = actor() {
        actor.stage.state().change(process);
    }
}

/// True in half of the cases.
pub(crate) fn chance() -> bool {
    actor().is_some_and(|actor| actor.stage.state().random.chance(50))
}

/// Waits until `is_ready`, or for a short `limit`. Whether it was ready.
pub(crate) fn block(limit: Option<Duration>, mut is_ready: impl FnMut() -> bool) -> bool {
    let Some(Actor { stage, me, .. }) = actor() else { return is_ready() };
    let end = limit.filter(|limit| *limit < SHORT).map(|limit| Instant::now() + limit);
    loop {
        if is_ready() {
            return true;
        }
        if end.is_some_and(|end| Instant::now() >= end) || stage.is_spurious() {
            return false;
        }
        stage.pass(me, true);
    }
}

/// The number of calls of [`notify`] for a thing.
pub(crate) fn notified<T>(of: &T) -> usize {
    let key = std::ptr::from_ref(of).addr();
    actor().map_or(0, |it| it.stage.state().notified.get(&key).copied().unwrap_or(0))
}

/// Wakes actors that wait for a change of [`notified`].
pub(crate) fn notify<T>(of: &T) {
    let key = std::ptr::from_ref(of).addr();
    if let Some(actor) = actor() {
        *actor.stage.state().notified.entry(key).or_insert(0) += 1;
    }
}

/// This thread as an actor. An actor that panics runs on at its own pace.
fn actor() -> Option<Actor> {
    if thread::panicking() {
        return None;
    }
    ACTOR.with_borrow(Clone::clone)
}

/// The payload of the panic that ends an actor.
struct Over;

/// The actors of a run.
struct Stage {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

struct State {
    random: Random,
    /// The actor whose turn it is.
    current: usize,
    /// By actor, whether it still runs.
    alive: Vec<bool>,
    /// The process of each actor.
    processes: Vec<usize>,
    /// By process, the turns in which something may have changed there.
    changes: Vec<u64>,
    /// By actor, the changes that its condition has seen in vain.
    seen: Vec<u64>,
    /// Turns so far.
    turns: u64,
    idle_since: Option<Instant>,
    /// Whether all actors have asked their conditions since an actor could last run.
    has_asked_all: bool,
    /// How often no actor could run.
    idles: usize,
    /// Main actors that still run.
    mains: usize,
    /// Per cent of points at which the turn passes.
    passes: usize,
    /// Per mille of waits that end for no reason.
    spurious: usize,
    failed: Option<String>,
    notified: HashMap<usize, usize>,
}

impl State {
    fn change(&mut self, process: usize) {
        self.changes[process] += 1;
    }

    fn change_of(&mut self, actor: usize) {
        self.change(self.processes[actor]);
    }

    fn changes_of(&self, actor: usize) -> u64 {
        self.changes[self.processes[actor]]
    }
}

impl Stage {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_spurious(&self) -> bool {
        let mut state = self.state();
        let spurious = state.spurious;
        state.random.below(1000) < spurious
    }

    /// Passes the turn on, perhaps. An actor that waits always does.
    fn pass(&self, me: usize, waits: bool) {
        let mut state = self.state();
        if waits {
            state.seen[me] = state.changes_of(me);
        } else {
            state.change_of(me);
            (state.idle_since, state.has_asked_all) = (None, false);
            let passes = state.passes;
            if !state.random.chance(passes) {
                return;
            }
        }
        self.choose(&mut state);
        let next = state.current;
        if next != me {
            // A thread that holds the lock as it wakes another makes that one wait.
            drop(state);
            self.turns[next].notify_one();
            state = self.state();
        }
        self.wait_for_turn(state, me, waits);
    }

    /// Sleeps until it is this actor's turn. The end of the run ends actors that wait.
    fn wait_for_turn(&self, mut state: MutexGuard<'_, State>, me: usize, waits: bool) {
        let is_over = |state: &State| state.failed.is_some() || waits && state.mains == 0;
        while state.current != me && !is_over(&state) {
            state = self.turns[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if is_over(&state) {
            drop(state);
            resume_unwind(Box::new(Over));
        }
    }

    /// Gives the turn to an actor that may run. The caller wakes it.
    fn choose(&self, state: &mut State) {
        loop {
            state.turns += 1;
            if state.turns > TURNS_MAX {
                return self.fail(state, "the run does not end");
            }
            let all = 0..state.alive.len();
            let may_run = |at: &usize| state.alive[*at] && state.seen[*at] != state.changes_of(*at);
            let may_run: Vec<usize> = all.filter(may_run).collect();
            if !may_run.is_empty() {
                state.current = state.random.pick(&may_run);
                return;
            }
            if state.mains == 0 {
                return self.wake_all();
            }
            if !std::mem::replace(&mut state.has_asked_all, true) {
                // Something outside may have changed.
                (0..state.changes.len()).for_each(|process| state.change(process));
                continue;
            }
            state.has_asked_all = false;
            // A limit may pass in real time.
            let since = *state.idle_since.get_or_insert_with(Instant::now);
            state.idles += 1;
            if state.idles > IDLES_MAX {
                // Wake-ups for no reason would hide for ever that none has a reason.
                state.spurious = 0;
            }
            let idle = since.elapsed();
            if idle > PATIENCE {
                return self.fail(state, "a wake-up was lost: all actors wait");
            }
            // All actors ask again after a sleep, which costs more than the sleep.
            thread::sleep((idle / 8).clamp(SLEEPS[0], SLEEPS[1]));
        }
    }

    fn fail(&self, state: &mut State, why: &str) {
        state.failed.get_or_insert_with(|| why.to_owned());
        self.wake_all();
    }

    fn wake_all(&self) {
        self.turns.iter().for_each(Condvar::notify_one);
    }

    /// Runs an actor to its end.
    fn act<R>(self: &Arc<Self>, actor: Actor, is_main: bool, act: impl FnOnce() -> R) -> Option<R> {
        let me = actor.me;
        ACTOR.set(Some(actor));
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.wait_for_turn(self.state(), me, false);
            act()
        }));
        ACTOR.set(None);
        let mut state = self.state();
        state.alive[me] = false;
        state.mains -= usize::from(is_main);
        state.change_of(me);
        if let Err(panic) = &result
            && !panic.is::<Over>()
        {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            self.fail(&mut state, text.unwrap_or("a panic"));
        } else if state.current == me {
            self.choose(&mut state);
            self.turns[state.current].notify_one();
        }
        result.ok()
    }
}

/// The code of an actor, and the number of its process.
pub(crate) type Act<'a, R> = (usize, Box<dyn FnOnce() -> R + Send + 'a>);

/// Runs actors in an order that `seed` decides, until all of `mains` have ended. The `others` end
/// then where they wait. Returns the results of `mains`.
///
/// # Errors
/// The reason why the run has failed: a panic, or a wake-up that was lost.
pub(crate) fn run<R: Send>(
    seed: u64,
    mains: Vec<Act<'_, R>>,
    others: Vec<Act<'_, ()>>,
) -> Result<Vec<R>, String> {
    let mut random = Random::new(seed);
    let count = mains.len() + others.len();
    let all = mains.iter().map(|it| it.0).chain(others.iter().map(|it| it.0));
    let processes: Vec<Arc<Process>> =
        (0..=all.clone().max().unwrap_or(0)).map(|_| Arc::default()).collect();
    let actors: Vec<usize> = all.collect();
    let state = State {
        current: random.below(count),
        alive: vec![true; count],
        changes: vec![1; processes.len()],
        turns: 0,
        has_asked_all: false,
        processes: actors.clone(),
        seen: vec![0; count],
        idle_since: None,
        idles: 0,
        mains: mains.len(),
        passes: random.pick(&[1, 5, 20, 50]),
        spurious: random.pick(&[0, 0, 50]),
        failed: None,
        notified: HashMap::new(),
        random,
    };
    let turns = (0..count).map(|_| Condvar::new()).collect();
    let stage = Arc::new(Stage { state: Mutex::new(state), turns });
    let actor = |me: usize| {
        let process = Arc::clone(&processes[actors[me]]);
        Actor { stage: Arc::clone(&stage), me, process }
    };
    let results: Vec<Option<R>> = thread::scope(|scope| {
        let first = mains.len();
        for (at, (_, act)) in others.into_iter().enumerate() {
            let (stage, actor) = (&stage, actor(first + at));
            scope.spawn(move || stage.act(actor, false, act));
        }
        let mains: Vec<_> = mains
            .into_iter()
            .enumerate()
            .map(|(at, (_, act))| {
                let (stage, actor) = (&stage, actor(at));
                scope.spawn(move || stage.act(actor, true, act))
            })
            .collect();
        mains.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let failed = stage.state().failed.take();
    failed.map_or_else(|| Ok(results.into_iter().map(Option::unwrap).collect()), Err)
}
