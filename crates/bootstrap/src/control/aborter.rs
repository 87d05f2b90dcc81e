//! Aborts a rank from any thread.

use std::sync::Arc;
use std::time::Duration;

use ringfold_types::Rank;
use tokio::sync::mpsc;

use super::local_coordinator::LocalCoordinator;
use super::message::GroupFailure;
use super::rank_state::RankState;
use super::task::Command;
use crate::arbiter::FailureReport;
use crate::arbiter::failure_cause::FailureCause;

/// Ends a rank's membership from any thread, even while another thread waits in a call. Clones end
/// the same membership.
///
/// Every rank of the communicator, this one included, then gets [`FailureCause::Aborted`], which
/// names this rank and its reason. Calls that wait end with this failure cause. A failure that was
/// announced earlier stays the failure cause. After the rank has left, an abort does nothing.
///
/// [`FailureCause::Aborted`]: crate::FailureCause::Aborted
#[derive(Clone, Debug)]
pub struct Aborter {
    pub(crate) rank: Rank,
    pub(crate) state: Arc<RankState>,
    pub(crate) route: Route,
}

/// How an aborter reaches the arbiter.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    Local(Arc<LocalCoordinator>),
    Task(mpsc::UnboundedSender<Command>),
}

impl Aborter {
    /// Aborts the rank. Every rank's error repeats `reason`, up to `limits::CAUSE_BYTES_MAX` bytes
    /// of it. Does not block.
    pub fn abort(&self, reason: impl Into<String>) {
        self.report(FailureReport::Abort { reason: reason.into() });
    }

    /// Revokes the communicator: every rank gets [`FailureCause::Revoked`], and no rank counts as
    /// failed. Otherwise as [`abort`](Self::abort). Does not block.
    ///
    /// [`FailureCause::Revoked`]: crate::FailureCause::Revoked
    pub fn revoke(&self) {
        self.report(FailureReport::Revoke);
    }

    fn report(&self, report: FailureReport) {
        match &self.route {
            Route::Local(coordinator) => coordinator.report_failure(self.rank, report),
            Route::Task(commands) => {
                if commands.send(Command::Report(report)).is_err() {
                    tracing::debug!("rank {} has already left; its abort has no effect", self.rank);
                }
            }
        }
    }

    /// Tells the other ranks that a group of some of them cannot be made. Does not block.
    pub(crate) fn fail_group(&self, failure: GroupFailure) {
        match &self.route {
            // Threads make groups without joining.
            Route::Local(_) => {}
            Route::Task(commands) => {
                commands.send(Command::GroupFailed(failure)).unwrap_or_default();
            }
        }
    }

    /// The rank whose membership this ends.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether the rank has left the communicator.
    pub(crate) fn is_over(&self) -> bool {
        match &self.route {
            Route::Local(_) => false,
            Route::Task(commands) => commands.is_closed(),
        }
    }

    /// The failure cause, or `None` while there is none: the one that waiting calls return. It does
    /// not change any more, and remains after the rank has left.
    #[must_use]
    pub fn failure_cause(&self) -> Option<Arc<FailureCause>> {
        self.state.failure_cause().cloned()
    }

    /// The ranks that have caused the failure, in ascending order. Empty without a failure.
    #[must_use]
    pub fn failed_ranks(&self) -> Vec<Rank> {
        let cause = self.state.failure_cause();
        let mut ranks = cause.map_or_else(Vec::new, |cause| cause.culprits());
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// How long this rank has known that `peer` has left; see [`Control::left_since`].
    ///
    /// [`Control::left_since`]: crate::Control::left_since
    #[must_use]
    pub fn left_since(&self, peer: Rank) -> Option<Duration> {
        if self.state.watch(peer) {
            match &self.route {
                Route::Local(coordinator) => coordinator.watch(self.rank, peer),
                // A rank that has left learns nothing more.
                Route::Task(commands) => commands.send(Command::Watch(peer)).unwrap_or_default(),
            }
        }
        self.state.left_since(peer)
    }
}
