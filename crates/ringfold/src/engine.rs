//! The engine of a communicator: it performs the calls and keeps the failure.
//!
//! Blocking calls use it where it is. While started calls are under way, the communicator lays it
//! in a slot, from which a waiting thread or the helper thread takes it (see `requests`).

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_bootstrap::FailureCause;
use ringfold_collectives::Progress;

use crate::backoff::{PARK_MAX, Parked};
use crate::core::Core;
use crate::error::{CallError, Error, Failure, Operation};
use crate::execute::{Drive, Work, finish, park_on};
use crate::health::{CAUSE_WAIT, Health, report_of};
use crate::requests::{Job, Slot, forget};
use crate::watch::Watch;

/// Operations that one pass over a started call performs on each lane.
pub(crate) const PASS_OPS: usize = 64;

/// How often an engine looks for the cause of a failure that it has reported.
const CAUSE_EVERY: Duration = Duration::from_millis(5);

/// Everything that changes while calls run.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) core: Core,
    pub(crate) health: Health,
    /// The name of the group; `None` for a group that no other group has made.
    pub(crate) group: Option<Arc<str>>,
    /// The started calls that have not ended, oldest first. Only the first one has begun.
    pub(crate) jobs: VecDeque<Job>,
    /// The failure that this rank has reported, until it has the cause.
    failing: Option<Failing>,
    is_armed: bool,
    /// The key by which the helper thread knows the descriptors of this engine.
    pub(crate) watched_by: Option<u64>,
    pub(crate) slot: Arc<Slot<Self>>,
}

/// A failure that this rank has reported.
struct Failing {
    operation: Operation,
    /// The cause that this rank states if it gets no other until then.
    own: FailureCause,
    until: Instant,
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.own, f)
    }
}

impl Engine {
    pub(crate) const fn new(core: Core, health: Health, slot: Arc<Slot<Self>>) -> Self {
        let jobs = VecDeque::new();
        Self {
            core,
            health,
            group: None,
            jobs,
            failing: None,
            is_armed: false,
            watched_by: None,
            slot,
        }
    }

    /// The descriptors that become readable when the started calls may move.
    pub(crate) fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.core.router.wake_fds().chain([self.health.watch().wake_fd()])
    }

    /// Has the helper thread forget the engine.
    pub(crate) fn unwatch(&mut self) {
        if let Some(key) = self.watched_by.take() {
            forget(key, self.wake_fds());
        }
    }

    /// Advances the started calls, in their order. Never waits.
    pub(crate) fn advance(&mut self) -> Progress {
        let mut has_moved = false;
        loop {
            if self.failing.is_some() && !self.has_cause() {
                return Progress::Idle;
            }
            self.end_failed();
            let Some(front) = self.jobs.front() else { return Progress::Done };
            let call = front.call;
            match self.advance_front() {
                Ok(Progress::Done) => {
                    has_moved = true;
                    if let Some(done) = self.jobs.pop_front() {
                        done.end(Ok(()));
                        self.slot.wake_waiting();
                    }
                }
                Ok(Progress::Idle) if has_moved => return Progress::Moved,
                Ok(progress) => return progress,
                Err(error) => {
                    self.begin_to_fail(Operation::Call { call, seq: self.core.seq }, error);
                }
            }
        }
    }

    fn advance_front(&mut self) -> Result<Progress, CallError> {
        let Self { core, health, jobs, .. } = self;
        let Some(job) = jobs.front_mut() else { return Ok(Progress::Done) };
        let (watch, call, place) = (health.watch(), &job.call, job.place);
        let begun = job.begun.get_or_insert_with(|| core.begin_started(call, place, watch));
        core.advance_started(begun, job.memory.buffers(), watch, PASS_OPS)
    }

    /// Checks whether the job has failed, and polls the transports. Whether one of them made
    /// progress.
    pub(crate) fn poll(&mut self) -> bool {
        if self.failing.is_some() {
            return false;
        }
        let polled = match self.health.watch().check_abort() {
            Ok(()) => self.core.router.poll().map_err(CallError::from),
            Err(error) => Err(error),
        };
        polled.unwrap_or_else(|error| {
            self.fail_started(error);
            true
        })
    }

    /// Checks, before a wait, whether the oldest call can still end well. Returns the longest wait.
    fn check(&mut self) -> Duration {
        if self.failing.is_some() {
            return CAUSE_EVERY;
        }
        let Self { core, health, jobs, .. } = self;
        let Some(job) = jobs.front_mut() else { return PARK_MAX };
        let Some(begun) = &mut job.begun else { return PARK_MAX };
        let checked = if begun.since.elapsed() < job.timeout {
            core.check_started(begun, job.memory.buffers(), health.watch())
        } else {
            Err(CallError::Overdue)
        };
        match checked {
            Ok(limit) => limit.min(PARK_MAX).min(job.timeout),
            Err(error) => {
                self.fail_started(error);
                Duration::ZERO
            }
        }
    }

    /// Asks peers to wake whoever waits for the engine, and tries everything once more. Returns the
    /// longest wait, which is zero if something moved. The caller disarms the engine.
    pub(crate) fn arm(&mut self) -> Duration {
        self.is_armed = true;
        self.core.router.arm();
        let has_polled = self.poll();
        let had_calls = !self.jobs.is_empty();
        match self.advance() {
            Progress::Idle if !has_polled => self.check(),
            Progress::Done if !has_polled && !had_calls => PARK_MAX,
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.core.router.disarm();
        }
    }

    /// Makes the communicator fail for good, in the oldest started call.
    fn fail_started(&mut self, error: CallError) {
        if let Some(job) = self.jobs.front()
            && self.failing.is_none()
            && self.health.failed.is_none()
        {
            let (call, seq) = (job.call, self.core.seq + u64::from(job.begun.is_none()));
            self.begin_to_fail(Operation::Call { call, seq }, error);
        }
    }

    /// Reports an error to the other ranks, and takes all memory of the started calls back.
    #[cold]
    fn begin_to_fail(&mut self, operation: Operation, error: CallError) {
        self.core.give_up_started();
        match report_of(&self.core, operation, error) {
            Ok((report, own)) => {
                self.health.watch().report_failure(report);
                let until = Instant::now() + CAUSE_WAIT;
                self.failing = Some(Failing { operation, own, until });
            }
            Err(cause) => drop(self.end_with(operation, cause)),
        }
    }

    /// Whether a failure that this rank has reported has a cause. The communicator has failed then.
    fn has_cause(&mut self) -> bool {
        let known = self.health.watch().failure_cause();
        let is_late = |failing: &Failing| Instant::now() >= failing.until;
        if known.is_none() && !self.failing.as_ref().is_none_or(is_late) {
            return false;
        }
        if let Some(Failing { operation, own, .. }) = self.failing.take() {
            self.end_with(operation, known.unwrap_or_else(|| Arc::new(own)));
        }
        true
    }

    /// Ends all started calls, if the communicator has failed.
    pub(crate) fn end_failed(&mut self) {
        if let Some(failure) = &self.health.failed {
            let failure = Arc::clone(failure);
            self.end_all(&failure);
        }
    }

    /// Ends all started calls by a failure.
    pub(crate) fn end_all(&mut self, failure: &Arc<Failure>) {
        self.failing = None;
        for job in self.jobs.drain(..) {
            job.end(Err(Error::Failed(Arc::clone(failure))));
        }
        self.slot.wake_waiting();
    }

    /// Takes the calls that were started while this thread had the engine.
    pub(crate) fn take_new(&mut self) {
        if self.slot.has_new() {
            self.jobs.append(&mut self.slot.take_new());
        }
    }

    /// Drives the started calls until `is_done`, or none is left. Blocks.
    pub(crate) fn drive(&mut self, is_done: impl Fn() -> bool) {
        let mut policy = self.core.wait_policy;
        let forever = ringfold_types::limits::timeout(Duration::MAX);
        self.guarded_started(|engine| {
            let driven = &mut Driving { engine, is_done };
            // Errors are those of the calls, which have them.
            finish(driven, &mut policy, forever).unwrap_or_default();
        });
        self.core.wait_policy = policy;
    }

    /// Advances `work` until it is done, beside the started calls. Blocks.
    pub(crate) fn block_on(&mut self, work: &mut impl Work) -> Result<(), CallError> {
        if self.jobs.is_empty() {
            return self.core.block_on(work, self.health.watch());
        }
        let (mut policy, timeout) = (self.core.wait_policy, self.core.timeout);
        let outcome = finish(&mut Beside { engine: self, work }, &mut policy, timeout);
        let outcome = outcome.and_then(|()| self.health.watch().check_abort_after_pause());
        if outcome.is_err() {
            self.core.give_up_started();
        }
        self.core.wait_policy = policy;
        outcome
    }
}

/// Started calls that a thread waits for.
struct Driving<'e, F> {
    engine: &'e mut Engine,
    is_done: F,
}

impl<F: Fn() -> bool> Drive for Driving<'_, F> {
    fn advance(&mut self) -> Result<Progress, CallError> {
        self.engine.take_new();
        let progress = self.engine.advance();
        Ok(if (self.is_done)() { Progress::Done } else { progress })
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn poll(&mut self) -> Result<bool, CallError> {
        Ok(self.engine.poll())
    }

    fn check_abort(&mut self) -> Result<(), CallError> {
        Ok(())
    }

    fn has_reader(&mut self) -> bool {
        self.engine.core.router.has_reader()
    }

    fn park(&mut self, limit: Duration) -> Result<Parked, CallError> {
        let parked = self.engine.park(limit, |_, _| Ok((false, Duration::MAX)));
        self.engine.health.watch().has_parked();
        parked
    }
}

/// Work beside started calls.
struct Beside<'e, W> {
    engine: &'e mut Engine,
    work: &'e mut W,
}

impl<W: Work> Drive for Beside<'_, W> {
    fn advance(&mut self) -> Result<Progress, CallError> {
        self.engine.take_new();
        let others = self.engine.advance();
        let Engine { core, health, failing, .. } = &mut *self.engine;
        if let Some(failure) = &health.failed {
            return Err(CallError::FailureCause(Arc::clone(&failure.cause)));
        }
        if failing.is_some() {
            // The transports have given up. The check for a failure has the cause soon.
            return Ok(Progress::Idle);
        }
        Ok(match self.work.advance(&mut core.router, health.watch(), PASS_OPS)? {
            Progress::Idle if others == Progress::Moved => Progress::Moved,
            progress => progress,
        })
    }

    fn is_flushed(&self) -> bool {
        self.engine.core.router.is_flushed()
    }

    fn poll(&mut self) -> Result<bool, CallError> {
        Ok(self.engine.core.router.poll()?)
    }

    fn check_abort(&mut self) -> Result<(), CallError> {
        self.engine.health.watch().check_abort()
    }

    fn has_reader(&mut self) -> bool {
        self.engine.core.router.has_reader()
    }

    fn park(&mut self, limit: Duration) -> Result<Parked, CallError> {
        let work = &mut *self.work;
        let parked = self.engine.park(limit, |core, watch| {
            let progress = work.advance(&mut core.router, watch, PASS_OPS)?;
            if progress == Progress::Idle {
                work.check_peers(&core.router, watch)?;
            }
            Ok((progress != Progress::Idle, work.park_limit()))
        });
        self.engine.health.watch().has_parked();
        parked
    }
}

impl Engine {
    /// Parks for at most `limit`, unless something moves after all. `other` advances what else the
    /// thread waits for, and returns whether that moved, and its longest park.
    fn park(
        &mut self,
        limit: Duration,
        other: impl FnOnce(&mut Core, &Watch) -> Result<(bool, Duration), CallError>,
    ) -> Result<Parked, CallError> {
        let longest = self.arm();
        let other = other(&mut self.core, self.health.watch());
        let parked = match other {
            Ok((false, of_other)) if !longest.is_zero() => {
                let longest = longest.min(of_other);
                let (core, watch, kick) = (&self.core, self.health.watch(), self.slot.kick());
                let is_woken = park_on(&core.router, watch, kick, limit.min(longest));
                if is_woken || longest < limit { Parked::Woken } else { Parked::Whole }
            }
            _ => Parked::Not,
        };
        self.disarm();
        other.map(|_| parked)
    }
}
