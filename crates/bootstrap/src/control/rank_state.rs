//! The state that a rank shares with its control plane: the rank records its calls there, and the
//! control plane sets the failure cause.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use rustix::event::{EventfdFlags, eventfd};

use super::message::GroupFailure;
use super::respondent::Respondent;
use crate::arbiter::call_log::CallLog;
use crate::arbiter::failure_cause::FailureCause;

/// Groups that could not be made, of which a rank remembers the reason.
const GROUP_FAILURES_KEPT: usize = 64;

/// The shared state of one rank.
#[derive(Debug)]
pub(crate) struct RankState {
    pub(crate) calls: CallLog,
    failure_cause: OnceLock<Arc<FailureCause>>,
    /// The part of the rank that answers inquiries, if it has one.
    pub(crate) respondent: OnceLock<Arc<dyn Respondent>>,
    /// The ranks whose departure this rank wants to know, and when it learned of it.
    watched: Mutex<BTreeMap<Rank, Option<Instant>>>,
    /// The latest groups of these ranks that cannot be made.
    group_failures: Mutex<VecDeque<GroupFailure>>,
    /// The eventfd of the rank's [`Control`](crate::Control), until the rank has left.
    wake: Weak<OwnedFd>,
}

impl RankState {
    /// The state, and a descriptor that becomes readable, and stays so, when there is a failure
    /// cause.
    ///
    /// # Errors
    /// No file descriptor is left for the eventfd.
    pub(crate) fn new(calls: CallLog) -> io::Result<(Arc<Self>, Arc<OwnedFd>)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let state = Arc::new(Self {
            calls,
            failure_cause: OnceLock::new(),
            respondent: OnceLock::new(),
            watched: Mutex::default(),
            group_failures: Mutex::default(),
            wake: Arc::downgrade(&wake),
        });
        Ok((state, wake))
    }

    /// Sets the failure cause, unless there is one.
    #[expect(clippy::host_endian_bytes, reason = "the kernel counts in our byte order")]
    pub(crate) fn set_failure_cause(&self, failure_cause: &Arc<FailureCause>) {
        if self.failure_cause.set(Arc::clone(failure_cause)).is_err() {
            return;
        }
        if let Some(wake) = self.wake.upgrade()
            && let Err(e) = rustix::io::write(&wake, &1_u64.to_ne_bytes())
        {
            tracing::warn!("cannot wake a waiting thread: {e}");
        }
        self.calls.failed(failure_cause);
    }

    /// Answers a question; empty if the rank answers none.
    pub(crate) fn answer(&self, question: &[u8]) -> Vec<u8> {
        self.respondent.get().map_or_else(Vec::new, |respondent| respondent.answer(question))
    }

    /// Takes the answers to a question.
    pub(crate) fn conclude(&self, question: &[u8], answers: &[Vec<u8>]) {
        if let Some(respondent) = self.respondent.get() {
            respondent.conclude(question, answers);
        }
    }

    /// Watches a rank. Returns whether this rank has not watched it before.
    pub(crate) fn watch(&self, rank: Rank) -> bool {
        let mut watched = self.watched();
        let is_new = !watched.contains_key(&rank);
        watched.entry(rank).or_default();
        is_new
    }

    /// Notes that a rank has left.
    pub(crate) fn set_left(&self, rank: Rank) {
        self.watched().entry(rank).or_default().get_or_insert_with(Instant::now);
    }

    /// The time since this rank learned that a watched rank has left.
    pub(crate) fn left_since(&self, rank: Rank) -> Option<Duration> {
        self.watched().get(&rank).copied().flatten().map(|then| then.elapsed())
    }

    /// The watched ranks that have not left.
    pub(crate) fn watched_present(&self) -> Vec<Rank> {
        let watched = self.watched();
        watched.iter().filter(|(_, left)| left.is_none()).map(|(rank, _)| *rank).collect()
    }

    /// Remembers that a group cannot be made, and forgets the oldest such group if there are many.
    pub(crate) fn note_group_failure(&self, failure: GroupFailure) {
        let mut failures = self.group_failures();
        failures.truncate(GROUP_FAILURES_KEPT - 1);
        failures.push_front(failure);
    }

    /// The reason why this group cannot be made, if a member has said so.
    pub(crate) fn group_failure(&self, group: u128) -> Option<GroupFailure> {
        self.group_failures().iter().find(|failure| failure.group == group).cloned()
    }

    fn group_failures(&self) -> MutexGuard<'_, VecDeque<GroupFailure>> {
        self.group_failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<Rank, Option<Instant>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failure_cause(&self) -> Option<&Arc<FailureCause>> {
        self.failure_cause.get()
    }
}
