//! The helper thread of the process: it advances started calls for which no thread waits.
//!
//! The first call that does not end at once starts it. It sleeps on the descriptors of all engines
//! in their slots, and never spins.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_topology::discover::Cpus;
use ringfold_transport::{Process, Waker};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::backoff::PARK_MAX;

/// Events that the helper takes from the system at once.
const EVENTS_AT_ONCE: usize = 64;

/// The helper of this process, once it has one.
static HELPER: Mutex<Option<Arc<Helper>>> = Mutex::new(None);

/// The log says once that there is no helper.
static WARNED: Once = Once::new();

struct Helper {
    process: Process,
    events: OwnedFd,
    /// Wakes the helper.
    kick: Waker,
    is_kicked: AtomicBool,
    /// Whether the helper sleeps without a limit.
    is_resting: AtomicBool,
    slots: Mutex<Slots>,
}

/// Calls that the helper advances.
pub(super) trait Attended: Send + Sync {
    /// Advances the calls, unless another thread does.
    fn attend(self: Arc<Self>);

    /// When the helper must attend to the calls at the latest. `None` if no call needs it.
    fn due(&self) -> Option<Instant>;
}

#[derive(Default)]
struct Slots {
    by_key: HashMap<u64, Arc<dyn Attended>>,
    last: u64,
}

/// The key of the helper's own descriptor.
const KICK: u64 = 0;

/// Has the helper attend to calls once, when one of `fds` becomes readable. Returns the key of the
/// calls, by which it does so again. Without a helper only waiting threads advance the calls. A new
/// helper runs on these `cpus`, if they are given.
pub(super) fn watch<'f>(
    key: Option<u64>,
    calls: &Arc<dyn Attended>,
    fds: impl Iterator<Item = BorrowedFd<'f>>,
    cpus: Option<&Cpus>,
) -> Option<u64> {
    let watched = Helper::of_process(cpus).and_then(|helper| helper.watch(key, calls, fds));
    watched
        .inspect_err(|error| {
            // A process that lacks descriptors may lack them at each start.
            WARNED.call_once(|| {
                tracing::warn!(
                    "no helper thread ({error}): started calls advance only while a thread waits"
                );
            });
        })
        .ok()
}

/// Has the helper forget calls and their descriptors.
pub(crate) fn forget<'f>(key: u64, fds: impl Iterator<Item = BorrowedFd<'f>>) {
    if let Some(helper) = existing() {
        helper.forget(key, fds);
    }
}

/// Has the helper look again when the next engine is due.
pub(super) fn look_sooner() {
    if let Some(helper) = existing() {
        helper.kick();
    }
}

fn existing() -> Option<Arc<Helper>> {
    #[cfg(test)]
    if let Some(process) = crate::interleave::process() {
        return process.get();
    }
    lock(&HELPER).clone().filter(|helper| helper.process.is_this())
}

impl Helper {
    fn of_process(cpus: Option<&Cpus>) -> io::Result<Arc<Self>> {
        #[cfg(test)]
        if let Some(process) = crate::interleave::process() {
            return process.get().map_or_else(
                || {
                    let made = Arc::new(Self::new()?);
                    process.set(&made);
                    Ok(made)
                },
                Ok,
            );
        }
        let mut helper = lock(&HELPER);
        if let Some(existing) = helper.as_ref().filter(|it| it.process.is_this()) {
            return Ok(Arc::clone(existing));
        }
        let made = Arc::new(Self::new()?);
        let (thread, cpus) = (Arc::clone(&made), cpus.cloned());
        thread::Builder::new().name("ringfold-calls".to_owned()).spawn(move || {
            if let Some(cpus) = cpus {
                run_on(&cpus);
            }
            thread.run();
        })?;
        *helper = Some(Arc::clone(&made));
        Ok(made)
    }

    fn new() -> io::Result<Self> {
        let made = Self {
            process: Process::this(),
            events: epoll::create(CreateFlags::CLOEXEC)?,
            kick: Waker::new()?,
            is_kicked: AtomicBool::new(false),
            is_resting: AtomicBool::new(false),
            slots: Mutex::default(),
        };
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&made.events, made.kick.as_fd(), EventData::new_u64(KICK), flags)?;
        Ok(made)
    }

    fn watch<'f>(
        &self,
        key: Option<u64>,
        calls: &Arc<dyn Attended>,
        fds: impl Iterator<Item = BorrowedFd<'f>>,
    ) -> io::Result<u64> {
        let added = key.unwrap_or_else(|| {
            let mut slots = lock(&self.slots);
            slots.last += 1;
            let key = slots.last;
            slots.by_key.insert(key, Arc::clone(calls));
            key
        });
        // A descriptor wakes the helper once. So it does not follow the calls of a thread that has
        // the engine again.
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        let fds: Vec<_> = fds.collect();
        for fd in &fds {
            let data = EventData::new_u64(added);
            let done = match key {
                Some(_) => epoll::modify(&self.events, fd, data, flags),
                None => epoll::add(&self.events, fd, data, flags),
            };
            if let Err(error) = done {
                self.forget(added, fds.into_iter());
                return Err(error.into());
            }
        }
        if self.is_resting.load(Ordering::SeqCst) {
            self.kick();
        }
        Ok(added)
    }

    fn forget<'f>(&self, key: u64, fds: impl Iterator<Item = BorrowedFd<'f>>) {
        for fd in fds {
            // A descriptor that is not there has nothing to forget.
            epoll::delete(&self.events, fd).unwrap_or_default();
        }
        lock(&self.slots).by_key.remove(&key);
    }

    fn kick(&self) {
        if !self.is_kicked.swap(true, Ordering::AcqRel) {
            self.kick.wake();
        }
    }

    /// Waits for events, for at most `limit`. It may return early.
    fn wait(&self, events: &mut Vec<epoll::Event>, limit: Option<Duration>) {
        events.clear();
        #[cfg(test)]
        if crate::interleave::is_on() {
            // The limit of a helper without calls may pass at once.
            if limit == Some(PARK_MAX) && crate::interleave::chance() {
                return;
            }
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut has_events = || {
                epoll::wait(&self.events, spare_capacity(events), Some(&now)).unwrap();
                !events.is_empty()
            };
            crate::interleave::block(limit, &mut has_events);
            return;
        }
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        // A signal may interrupt the wait.
        epoll::wait(&self.events, spare_capacity(events), limit.as_ref()).unwrap_or(0);
    }

    /// Advances calls until the process ends.
    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        let mut has_slept = false;
        loop {
            let now = Instant::now();
            let all: Vec<_> = lock(&self.slots).by_key.values().map(Arc::clone).collect();
            let due = all.into_iter().filter_map(|calls| Some((calls.due()?, calls)));
            let due: Vec<_> = due.collect();
            // It rests only after a whole sleep without calls, and looks once more before.
            let may_rest = due.is_empty() && has_slept;
            let was_resting = self.is_resting.swap(may_rest, Ordering::SeqCst);
            if may_rest && !was_resting {
                continue;
            }
            let mut sleep = if may_rest { None } else { Some(PARK_MAX) };
            for (when, calls) in due {
                if when <= now {
                    attend(calls);
                    sleep = Some(Duration::ZERO);
                } else {
                    sleep = sleep.map(|sleep| sleep.min(when - now));
                }
            }
            self.wait(&mut events, sleep);
            has_slept = events.is_empty() && sleep == Some(PARK_MAX);
            for event in &events {
                let event: epoll::Event = *event;
                let key = event.data.u64();
                if key == KICK {
                    self.kick.clear();
                    self.is_kicked.store(false, Ordering::Release);
                    continue;
                }
                let calls = lock(&self.slots).by_key.get(&key).cloned();
                if let Some(calls) = calls {
                    attend(calls);
                }
            }
        }
    }
}

/// The helper of this actor's process, in tests of interleavings.
#[cfg(test)]
pub(super) fn help() {
    let Some(process) = crate::interleave::process() else { return };
    loop {
        crate::interleave::block(None, || process.get::<Helper>().is_some());
        process.get::<Helper>().iter().for_each(|helper| helper.run());
    }
}

/// Binds this thread to CPUs. If the system refuses, it keeps those that it has.
fn run_on(cpus: &Cpus) {
    let mut set = CpuSet::new();
    let known = cpus.iter().map(usize::from).filter(|cpu| *cpu < CpuSet::MAX_CPU);
    known.for_each(|cpu| set.set(cpu));
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("the helper thread of started calls cannot run on CPUs {cpus}: {error}");
    }
}

/// Advances calls. A panic has failed them, and must not end the helper.
fn attend(calls: Arc<dyn Attended>) {
    if catch_unwind(AssertUnwindSafe(|| calls.attend())).is_err() {
        tracing::error!("a started call panicked");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_cpus_that_are_given() {
        let allowed = Cpus::allowed();
        let last: Cpus = allowed.iter().last().into_iter().collect();
        let found = thread::scope(|scope| {
            let found = scope.spawn(|| {
                run_on(&last);
                // The system refuses a set without a CPU of this machine.
                run_on(&Cpus::from_iter([8191]));
                Cpus::allowed()
            });
            found.join().unwrap()
        });
        assert_eq!(found, last);
        assert_eq!(Cpus::allowed(), allowed, "only that thread");
    }
}
