//! A rank's end of the control plane: it reports the rank's failures to the others, and receives
//! the one failure cause.
//!
//! A `Control` shares `rank_state` with its control task in `task`, which exchanges the messages
//! of `message` with the coordinator. `inbound` receives them, and `reconnect` restores the
//! connection if `local_process` does not tell that the peer has ended. `relay` forwards long
//! messages to other ranks. All tasks run in `runtime`.
//! Threads of one process have `local` and `local_coordinator` instead. Callers use `aborter`,
//! `exchange`, `inquiry` and `respondent` beside a `Control`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};

use crate::arbiter::FailureReport;
use crate::arbiter::call_log::{CallName, Finished};
use crate::arbiter::failure_cause::FailureCause;
use aborter::{Aborter, Route};
use exchange::{ExchangeError, contribution_bytes_max};
use inquiry::Inquirer;
use local_coordinator::LocalCoordinator;
use rank_state::RankState;
use respondent::Respondent;
use task::TaskHandle;

use crate::record::read::AwaitedMessage;
use crate::regroup::meeting_point::MeetingPoint;
use crate::regroup::{Doorkeeper, RegroupError, Regrouped, Wish};

pub(crate) mod aborter;
pub(crate) mod exchange;
pub(crate) mod inbound;
pub(crate) mod inquiry;
pub mod local;
pub(crate) mod local_coordinator;
pub(crate) mod local_process;
pub(crate) mod message;
pub(crate) mod rank_state;
pub(crate) mod reconnect;
pub(crate) mod relay;
pub(crate) mod respondent;
pub(crate) mod runtime;
pub(crate) mod task;

/// A rank's connection to the other ranks beside the data path.
///
/// `entered`, `finished` and `failure_cause` are for the hot path: they take a few nanoseconds,
/// without locks or system calls. Dropping a `Control` without `leave` tells the others that this
/// rank has failed.
#[derive(Debug)]
pub struct Control {
    rank: Rank,
    size: usize,
    state: Arc<RankState>,
    /// An [`Aborter`] outlives the rank, and keeps the state alone.
    wake: Arc<OwnedFd>,
    backend: Backend,
    /// Where this rank regroups with others, if it has a port for that.
    meeting: Option<Arc<MeetingPoint>>,
    left: bool,
}

#[derive(Debug)]
pub(crate) enum Backend {
    Local(Arc<LocalCoordinator>),
    Task(TaskHandle),
}

impl Control {
    pub(crate) fn new(
        rank: Rank,
        size: usize,
        (state, wake): (Arc<RankState>, Arc<OwnedFd>),
        backend: Backend,
    ) -> Self {
        Self { rank, size, state, wake, backend, meeting: None, left: false }
    }

    /// Has the rank regroup at this place.
    pub(crate) fn meeting_at(mut self, meeting: Option<Arc<MeetingPoint>>) -> Self {
        self.meeting = meeting;
        self
    }

    /// This rank.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Has the calls from number `seq` on count as calls of the kind of this one, until the next
    /// change. The thread that calls `entered` must call it.
    pub fn begins_kind(&self, seq: u64, name: &CallName) {
        self.state.calls.begins_kind(seq, name);
    }

    /// Records that call number `seq` begins, at the time `at` of the record's clock. The number
    /// must grow from call to call. One thread at a time must call it.
    #[inline]
    pub fn entered(&self, seq: u64, name: &CallName, at: u64) {
        self.state.calls.entered(seq, name, at);
    }

    /// Records that call number `seq` and all calls before it are finished. The thread that calls
    /// `entered` must call it.
    #[inline]
    pub fn finished(&self, seq: u64, how: Finished) {
        self.state.calls.finished(seq, how);
    }

    /// Records that a message between this rank and another ended at the time `at` of the record's
    /// clock. One thread at a time must call it.
    #[inline]
    pub fn message_ended(&self, at: u64) {
        self.state.calls.message_ended(at);
    }

    /// Records that this rank waits for a message: from the time `since` on, or since the last wait
    /// began. The thread that waits must call it.
    pub fn waits(&self, message: AwaitedMessage, since: Option<u64>) {
        self.state.calls.waits(message, since);
    }

    /// Records that the wait ended at the time `until`. The thread that waited must call it.
    pub fn waited(&self, until: u64) {
        self.state.calls.waited(until);
    }

    /// Counts the time for which a thread in a call waited, between two stamps of the record's
    /// clock.
    pub fn count_wait(&self, since: u64, until: u64) {
        self.state.calls.count_wait(since, until);
    }

    /// The number of this rank's group in the record; zeros without a place there.
    #[must_use]
    pub fn group_id(&self) -> [u64; 2] {
        self.state.calls.group_id()
    }

    /// The failure cause, or `None` while there is none. A failure cause never changes. Costs one
    /// atomic load while there is none.
    #[inline]
    #[must_use]
    pub fn failure_cause(&self) -> Option<Arc<FailureCause>> {
        self.state.failure_cause().cloned()
    }

    /// A descriptor that becomes readable, and stays so, when there is a failure cause. The caller
    /// must not read from it.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Reports a failure to the others. Does not block. A failure cause follows within about
    /// `limits::COORDINATOR_SILENCE_MS`.
    pub fn report_failure(&self, report: FailureReport) {
        match &self.backend {
            Backend::Local(coordinator) => coordinator.report_failure(self.rank, report),
            Backend::Task(task) => task.report_failure(report),
        }
    }

    /// Waits until the control thread has handled every message that had arrived on the control
    /// connection. If a failure cause was among them, `failure_cause` returns it from then on.
    ///
    /// A rank that was stopped must call it before it touches memory that its peers share. It
    /// usually takes microseconds. In rank 0 it also waits until every reported failure has its
    /// failure cause. Blocks for at most `limits::CATCH_UP_MS`, and not at all after the control
    /// thread has ended. Returns whether everything is handled.
    pub fn catch_up(&self) -> bool {
        match &self.backend {
            Backend::Task(task) => task.catch_up(Duration::from_millis(limits::CATCH_UP_MS)),
            Backend::Local(_) => true,
        }
    }

    /// How long this rank has known that `peer` has left the job. `None` if it does not know, or
    /// the peer has not left. The first call for a peer asks for the news, which follows. Does not
    /// block.
    #[must_use]
    pub fn left_since(&self, peer: Rank) -> Option<Duration> {
        self.aborter().left_since(peer)
    }

    /// A handle that aborts this rank from any thread.
    #[must_use]
    pub fn aborter(&self) -> Aborter {
        Aborter { rank: self.rank, state: Arc::clone(&self.state), route: self.route() }
    }

    /// Has `respondent` answer the inquiries of all ranks from now on. Only the first one does.
    pub fn answer_by(&self, respondent: Arc<dyn Respondent>) {
        if self.state.respondent.set(respondent).is_err() {
            tracing::debug!("rank {} already has a respondent", self.rank);
        }
    }

    /// A handle that asks inquiries of this rank from any thread.
    #[must_use]
    pub fn inquirer(&self) -> Inquirer {
        Inquirer { rank: self.rank, route: self.route() }
    }

    fn route(&self) -> Route {
        match &self.backend {
            Backend::Local(coordinator) => Route::Local(Arc::clone(coordinator)),
            Backend::Task(task) => Route::Task(task.commands()),
        }
    }

    /// The number of bytes that each of `size` ranks may put into an exchange.
    #[must_use]
    pub const fn exchange_bytes_max(size: usize) -> usize {
        contribution_bytes_max(size)
    }

    /// Sends `bytes` to every rank and returns the bytes of every rank, in rank order. All ranks
    /// must call it, equally often. Blocks. It is meant for setup, because all bytes pass through
    /// rank 0, which gets them from all and sends all of them to some, for the others.
    ///
    /// # Errors
    /// Fails if there is a failure cause, if `timeout` has passed, or if `bytes` are too many.
    pub fn exchange(
        &self,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let max = contribution_bytes_max(self.size);
        if bytes.len() > max {
            return Err(ExchangeError::TooLarge { bytes: bytes.len(), max });
        }
        if let Some(cause) = self.failure_cause() {
            return Err(ExchangeError::Failed(cause));
        }
        let all = match &self.backend {
            Backend::Local(coordinator) => coordinator.exchange(self.rank, bytes, timeout),
            Backend::Task(task) => task.exchange(bytes, timeout),
        };
        all.map_err(|e| self.failure_cause().map_or(e, ExchangeError::Failed))
    }

    /// Agrees with the other survivors of a failure on the members of a new group. The failed group
    /// stays as it is. All survivors must call it. Blocks until the members are known. Returns
    /// `None` if the doubtful group of the wish has formed.
    ///
    /// # Errors
    /// See [`RegroupError`].
    pub fn regroup(&self, wish: Wish) -> Result<Option<Regrouped>, RegroupError> {
        match (&self.backend, &self.meeting) {
            (Backend::Local(coordinator), _) => coordinator.regroup(self.rank, &wish).map(Some),
            (Backend::Task(task), Some(meeting)) => {
                meeting.regroup(self.rank, task.runtime(), wish)
            }
            (Backend::Task(_), None) => Err(RegroupError::System("it has no port".to_owned())),
        }
    }

    /// Agrees with the other ranks on the bitwise and of their flags, also after a failure. All
    /// ranks that live must call it. Blocks until the value is known.
    ///
    /// # Errors
    /// See [`RegroupError`].
    pub fn agree(&self, wish: Wish, flag: u64) -> Result<u64, RegroupError> {
        match (&self.backend, &self.meeting) {
            (Backend::Local(coordinator), _) => coordinator.agree(self.rank, &wish, flag),
            (Backend::Task(task), Some(meeting)) => {
                meeting.agree(self.rank, task.runtime(), wish, flag)
            }
            (Backend::Task(_), None) => Err(RegroupError::System("it has no port".to_owned())),
        }
    }

    /// A guard that answers ranks that come too late to regroup, also after this control plane has
    /// ended.
    #[must_use]
    pub fn doorkeeper(&self) -> Doorkeeper {
        Doorkeeper(self.meeting.clone())
    }

    /// Leaves the job, and waits for the other ranks to leave. Rank 0, which runs the control
    /// plane, waits for at most `Options::linger`, and other ranks for at most
    /// `limits::PARTING_MS`. Threads of one process do not wait.
    ///
    /// When all ranks have left, their latest calls (`limits::CALLS_REMEMBERED`) are compared.
    /// Ranks that still wait then learn of a difference that kept no rank waiting.
    ///
    /// # Errors
    /// Returns the failure cause, if there is one.
    pub fn leave(mut self) -> Result<(), Arc<FailureCause>> {
        self.left = true;
        match &mut self.backend {
            Backend::Local(coordinator) => coordinator.leave(self.rank),
            Backend::Task(task) => task.leave(),
        }
        self.failure_cause().map_or(Ok(()), Err)
    }

    /// Ends the membership. The other ranks get [`FailureCause::Aborted`] with this reason.
    pub fn fail(mut self, reason: String) {
        self.left = true;
        self.abandon(reason);
    }

    fn abandon(&mut self, reason: String) {
        match &mut self.backend {
            Backend::Local(coordinator) => coordinator.abandon(self.rank, reason),
            Backend::Task(task) => task.abandon(reason),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let how = if std::thread::panicking() { "panicked" } else { "dropped its communicator" };
        self.abandon(format!("it {how} without leaving the job"));
    }
}
