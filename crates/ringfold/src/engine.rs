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
use crate::config::CallProgress;
use crate::core::Core;
use crate::error::{CallError, Error, Failure, Operation};
use crate::execute::{Drive, finish, park_on};
use crate::health::{CAUSE_WAIT, Health, report_of, who};
use crate::messages::{End, Receiving, Sending};
use crate::requests::job::{CallJob, Job};
use crate::requests::progress::forget;
use crate::requests::slot::Slot;
use crate::ticket::Outcome;
use crate::watch::Watch;

/// Operations that one pass over a started call performs on each lane.
pub(crate) const PASS_OPS: usize = 64;

/// The longest park of a thread that also advances the calls of other communicators.
const CALLER_PARK: Duration = Duration::from_millis(1);

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
    pub(crate) jobs: VecDeque<CallJob>,
    /// The failure that this rank has reported, until it has the cause.
    failing: Option<Failing>,
    is_armed: bool,
    /// The key by which the helper thread knows the descriptors of this engine.
    pub(crate) watched_by: Option<u64>,
    /// The threads that advance started calls.
    pub(crate) progress: CallProgress,
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
    pub(crate) const fn new(
        core: Core,
        health: Health,
        progress: CallProgress,
        slot: Arc<Slot<Self>>,
    ) -> Self {
        let jobs = VecDeque::new();
        Self {
            core,
            health,
            group: None,
            jobs,
            failing: None,
            is_armed: false,
            watched_by: None,
            progress,
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

    /// Whether calls or messages are under way.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.jobs.is_empty() || !self.core.post.is_idle() || self.failing.is_some()
    }

    /// Adds a started call or message.
    pub(crate) fn add(&mut self, job: Job) {
        let added = match job {
            Job::Call(call) => {
                self.jobs.push_back(call);
                Ok(())
            }
            Job::Send(sending) => {
                self.core.post.send(sending);
                Ok(())
            }
            Job::Receive(receiving) => self.core.post.receive(receiving),
        };
        if let Err(error) = added {
            self.fail_message(error);
        }
        self.end_failed();
    }

    /// The operation of the oldest started call, or of a message.
    pub(crate) fn started(&mut self) -> Option<Operation> {
        match self.jobs.front() {
            Some(job) => {
                let seq = self.core.seq + u64::from(job.begun.is_none());
                Some(job.call.operation(seq))
            }
            None => self.core.post.first(),
        }
    }

    /// Advances the started calls, in their order, and all messages. Never waits.
    pub(crate) fn advance(&mut self) -> Progress {
        let mut has_moved = false;
        loop {
            if self.failing.is_some() && !self.has_cause() {
                return Progress::Idle;
            }
            self.end_failed();
            let progress = self.advance_calls(&mut has_moved);
            if self.failing.is_some() {
                continue;
            }
            if self.core.post.is_idle() {
                return progress;
            }
            match self.core.post.advance(&mut self.core.router) {
                Ok(Progress::Moved) => {
                    self.health.watch().message_ended();
                    self.slot.wake_waiting();
                    return Progress::Moved;
                }
                Ok(Progress::Done) => {
                    self.health.watch().message_ended();
                    self.slot.wake_waiting();
                    return progress;
                }
                Ok(Progress::Idle) if progress == Progress::Done => return Progress::Idle,
                Ok(Progress::Idle) => return progress,
                Err(error) => self.fail_message(error),
            }
        }
    }

    /// Advances the started calls, until one must wait or fails.
    fn advance_calls(&mut self, has_moved: &mut bool) -> Progress {
        loop {
            if self.jobs.is_empty() {
                return Progress::Done;
            }
            match self.advance_front() {
                Ok(Progress::Done) => {
                    *has_moved = true;
                    let front = self.jobs.front_mut();
                    if let Some((job, next)) =
                        front.and_then(|it| it.call.next().map(|next| (it, next)))
                    {
                        (job.call, job.begun) = (next, None);
                        continue;
                    }
                    if let Some(done) = self.jobs.pop_front() {
                        done.end(Ok(()));
                        self.slot.wake_waiting();
                    }
                }
                Ok(Progress::Idle) if *has_moved => return Progress::Moved,
                Ok(progress) => return progress,
                Err(error) => {
                    self.fail_started(error);
                    return Progress::Idle;
                }
            }
        }
    }

    fn advance_front(&mut self) -> Result<Progress, CallError> {
        let Self { core, health, jobs, .. } = self;
        let Some(job) = jobs.front_mut() else { return Ok(Progress::Done) };
        let CallJob { call, place, begun, memory, .. } = job;
        let watch = health.watch();
        let begun = begun.get_or_insert_with(|| core.begin_started(call, *place, watch));
        core.advance_started(call, begun, (memory.lent(), *place), watch, PASS_OPS)
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
        let of_messages = self.check_messages();
        if of_messages.is_zero() {
            return of_messages;
        }
        let Self { core, health, jobs, .. } = self;
        let Some(job) = jobs.front_mut() else { return of_messages };
        let Some(begun) = &mut job.begun else { return of_messages };
        let checked = if begun.since.elapsed() < job.timeout {
            let memory = (job.memory.lent(), job.place);
            core.check_started(&mut job.call, begun, memory, health.watch())
        } else {
            Err(CallError::Overdue)
        };
        match checked {
            Ok(limit) => limit.min(of_messages).min(job.timeout),
            Err(error) => {
                self.fail_started(error);
                Duration::ZERO
            }
        }
    }

    /// Checks, before a wait, whether all messages can still end well. Returns the longest wait.
    fn check_messages(&mut self) -> Duration {
        let Core { post, router, .. } = &mut self.core;
        if post.is_idle() {
            return PARK_MAX;
        }
        let checked = match post.time_left() {
            Duration::ZERO => Err(CallError::Overdue),
            left => post.check_peers(router, self.health.watch()).map(|()| left.min(PARK_MAX)),
        };
        checked.unwrap_or_else(|error| {
            self.fail_message(error);
            Duration::ZERO
        })
    }

    /// Asks peers to wake whoever waits for the engine, and tries everything once more. Returns the
    /// longest wait, which is zero if something moved. The caller disarms the engine.
    pub(crate) fn arm(&mut self) -> Duration {
        self.is_armed = true;
        self.core.router.arm();
        let has_polled = self.poll();
        let had_calls = self.has_work();
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
        let started = self.started();
        let operation = started.unwrap_or_else(|| self.core.post.concerned(error.peer()));
        self.fail_once(operation, error);
    }

    /// Makes the communicator fail for good, in a message.
    fn fail_message(&mut self, error: CallError) {
        let overdue = match &error {
            CallError::Overdue => self.core.post.overdue(),
            _ => None,
        };
        let operation = overdue.unwrap_or_else(|| self.core.post.concerned(error.peer()));
        self.fail_once(operation, error);
    }

    fn fail_once(&mut self, operation: Operation, error: CallError) {
        if self.failing.is_none() && self.health.failed.is_none() {
            self.begin_to_fail(operation, error);
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
        self.core.post.end_all(failure);
        self.slot.wake_waiting();
    }

    /// Takes the calls that were started while this thread had the engine.
    pub(crate) fn take_new(&mut self) {
        if self.slot.has_new() {
            self.slot.take_new().into_iter().for_each(|started| self.add(started));
        }
    }

    /// Drives the started calls and messages until `is_done`, or none is left. Blocks. The record
    /// names a message whose outcome goes to an end for which `is_awaited` holds.
    pub(crate) fn drive(
        &mut self,
        is_awaited: impl Fn(&End) -> bool,
        is_done: impl Fn(&Self) -> bool,
    ) {
        let mut policy = self.core.wait_policy;
        let forever = ringfold_types::limits::timeout(Duration::MAX);
        self.guarded_started(|engine| {
            let driven = &mut Driving { engine, is_awaited, is_done };
            // Errors are those of the calls, which have them.
            finish(driven, &mut policy, forever).unwrap_or_default();
            driven.engine.health.watch().has_waited();
        });
        self.core.wait_policy = policy;
    }

    /// Ends the receives whose messages have not come, because this rank leaves.
    pub(crate) fn end_receives(&mut self) {
        if self.core.post.is_receiving() {
            // Devices of peers may write to the buffer.
            self.core.router.withdraw();
        }
        let operation = self.core.post.concerned(None);
        let reason = "the communicator left before the message came".to_owned();
        let cause = Arc::new(FailureCause::Aborted { who: who(self.core.rank), reason });
        let (rank, group) = (self.core.rank, self.group.clone());
        self.core.post.end_all(&Arc::new(Failure { rank, group, operation, cause }));
    }

    /// Performs the messages of a blocking call, beside those that are under way. Blocks until all
    /// are done. Returns the message of a receive.
    pub(crate) fn exchange(
        &mut self,
        sends: impl Iterator<Item = Sending>,
        receives: impl Iterator<Item = Receiving>,
        first: Operation,
    ) -> Outcome {
        self.health.check()?;
        let is_alone = !self.has_work();
        let deadline = if is_alone { None } else { Some(Instant::now() + self.core.timeout) };
        let mut received = None;
        let outcome = self.guarded(
            |_| first,
            |it| {
                let Core { post, router, .. } = &mut it.core;
                for mut sending in sends {
                    sending.deadline = deadline;
                    if !(is_alone && post.sends_at_once(&mut sending, router)?) {
                        post.send(sending);
                    }
                }
                for mut receiving in receives {
                    receiving.deadline = deadline;
                    let at_once =
                        if is_alone { post.receives_at_once(&mut receiving, router) } else { None };
                    match at_once {
                        Some(_) => received = at_once,
                        None => post.receive(receiving)?,
                    }
                }
                if is_alone {
                    if post.is_foreground_done() && router.is_flushed() {
                        return it.health.watch().check_abort_after_pause();
                    }
                    return it.core.exchange_alone(it.health.watch());
                }
                if post.is_foreground_done() {
                    return Ok(());
                }
                let is_own = |end: &End| matches!(end, End::Foreground);
                it.drive(is_own, |it| it.core.post.is_foreground_done());
                Ok(())
            },
        );
        if let Err(error) = outcome {
            let operation = self.core.post.unfinished(error.peer()).unwrap_or(first);
            return Err(self.fail_in(operation, error));
        }
        self.health.watch().message_ended();
        let outcome = self.core.post.take_outcome()?;
        Ok(outcome.or(received))
    }
}

/// Started calls that a thread waits for.
struct Driving<'e, A, F> {
    engine: &'e mut Engine,
    is_awaited: A,
    is_done: F,
}

impl<A: Fn(&End) -> bool, F: Fn(&Engine) -> bool> Drive for Driving<'_, A, F> {
    fn advance(&mut self) -> Result<Progress, CallError> {
        self.engine.take_new();
        let progress = self.engine.advance();
        Ok(if (self.is_done)(self.engine) { Progress::Done } else { progress })
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn poll(&mut self) -> Result<bool, CallError> {
        Ok(self.engine.poll())
    }

    fn lacks_poll(&self) -> bool {
        self.engine.core.router.lacks_poll()
    }

    fn check_abort(&mut self) -> Result<(), CallError> {
        Ok(())
    }

    fn has_reader(&mut self) -> bool {
        self.engine.core.router.has_reader()
    }

    fn park(&mut self, limit: Duration) -> Result<Parked, CallError> {
        let longest = self.engine.arm();
        let awaited = self.engine.core.post.awaited(&self.is_awaited);
        let engine = &*self.engine;
        awaited.into_iter().for_each(|message| engine.health.watch().waits(message));
        let longest = match engine.progress {
            // No event of the other calls that the thread advances wakes it.
            CallProgress::Caller => longest.min(CALLER_PARK),
            CallProgress::Thread | CallProgress::Cpus(_) => longest,
        };
        let parked = if longest.is_zero() {
            Parked::Not
        } else {
            let (core, watch, kick) = (&engine.core, engine.health.watch(), engine.slot.kick());
            let is_woken = park_on(&core.router, watch, kick, limit.min(longest));
            if is_woken || longest < limit { Parked::Woken } else { Parked::Whole }
        };
        self.engine.disarm();
        self.engine.health.watch().has_parked();
        Ok(parked)
    }

    fn watch(&self) -> &Watch {
        self.engine.health.watch()
    }
}
