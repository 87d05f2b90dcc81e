//! The failure of a communicator: its report, and the cause on which all ranks agree.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{Control, FailureCause, FailureReport, RankOnHost, record_event};
use ringfold_transport::LinkFault;
use ringfold_types::{Rank, limits};

use crate::backoff::park;
use crate::core::Core;
use crate::error::{CallError, Error, Failure, Message, Operation};
use crate::watch::Watch;

/// Whether the job goes on, as this rank knows it.
#[derive(Debug)]
pub(crate) struct Health {
    /// The control plane. `None` only while the communicator leaves.
    pub(crate) watch: Option<Watch>,
    pub(crate) failed: Option<Arc<Failure>>,
}

/// The time that a rank waits for the cause after it reported a failure. Then it states its own
/// cause. The control thread has the cause far sooner, even if rank 0 dies or stops.
pub(crate) const CAUSE_WAIT: Duration = Duration::from_millis(5 * limits::COORDINATOR_SILENCE_MS);

impl Health {
    pub(crate) fn new(control: Control) -> Self {
        Self { watch: Some(Watch::new(control)), failed: None }
    }

    /// The control plane.
    #[inline]
    pub(crate) fn watch(&self) -> &Watch {
        let Some(watch) = &self.watch else { unreachable!("only leaving takes it") };
        watch
    }

    /// Fails if the job has failed in an earlier operation.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.failed.as_ref().map_or(Ok(()), |failure| Err(Error::Failed(Arc::clone(failure))))
    }

    /// Reports a failure, and waits for the cause on which all ranks agree. `own` is this rank's.
    pub(crate) fn agree(&self, report: FailureReport, own: FailureCause) -> Arc<FailureCause> {
        let watch = self.watch();
        watch.report_failure(report);
        let deadline = Instant::now() + CAUSE_WAIT;
        loop {
            if let Some(cause) = watch.failure_cause() {
                return cause;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("no cause within {CAUSE_WAIT:?}; this rank states its own");
                return Arc::new(own);
            }
            park(&[Some(watch.wake_fd())], left);
        }
    }
}

/// The report of an error that this rank observed in `operation`, and its own cause.
///
/// # Errors
/// The cause on which all ranks have agreed before.
pub(crate) fn report_of(
    core: &Core,
    operation: Operation,
    error: CallError,
) -> Result<(FailureReport, FailureCause), Arc<FailureCause>> {
    let &Core { rank, seq, timeout, .. } = core;
    let between = |peer, cause| FailureCause::Link { from: who(rank), to: who(peer), cause };
    let link = |peer: Rank, cause: String| {
        (FailureReport::Link { peer: peer.0, cause: cause.clone() }, between(peer, cause))
    };
    let message = |peer: Rank, cause: String| {
        let report = FailureReport::Message { peer: peer.0, cause: cause.clone() };
        (report, FailureCause::Message { from: who(rank), to: who(peer), cause })
    };
    let aborted = |reason| FailureCause::Aborted { who: who(rank), reason };
    let abort = |reason: String| (FailureReport::Abort { reason: reason.clone() }, aborted(reason));
    let late = |what: &dyn fmt::Display| format!("{what} took longer than {timeout:?}");
    let late_message = || late(&operation) + &unwanted(core, operation);
    Ok(match error {
        CallError::FailureCause(cause) => return Err(cause),
        CallError::Link(error) if matches!(error.fault, LinkFault::Died) => {
            let peer = error.link.peer;
            (FailureReport::Died { peer: peer.0 }, FailureCause::Died { who: who(peer) })
        }
        CallError::Link(error) => {
            record_event(&format!("{operation}: {error}"));
            link(error.link.peer, error.to_string())
        }
        CallError::Left(peer) => match unwanted(core, operation) {
            waiting if waiting.is_empty() => link(peer, "the rank has left the job".to_owned()),
            waiting => message(peer, format!("{operation}: the rank has left the job{waiting}")),
        },
        CallError::Foreign(peer) => {
            let cause = "it sent bytes of another call".to_owned();
            (FailureReport::Mismatch { seq, peer: peer.0 }, between(peer, cause))
        }
        CallError::Unexpected { peer, cause } => message(peer, cause),
        CallError::Panicked(reason) => abort(reason),
        CallError::Overdue => match operation {
            Operation::Message(Message { peer, .. })
            | Operation::Receive { from: Some(peer), .. } => message(peer, late_message()),
            Operation::Receive { from: None, .. } => abort(late_message()),
            _ => (FailureReport::Overdue { seq }, aborted(late(&format_args!("call #{seq}")))),
        },
    })
}

/// Names the messages that have arrived for a receive with another tag.
fn unwanted(core: &Core, operation: Operation) -> String {
    let Operation::Receive { from, .. } = operation else { return String::new() };
    let waiting = core.post.unwanted(from, &core.router);
    let Some(Message { peer, tag, bytes, .. }) = waiting.first() else { return String::new() };
    let others = match waiting.len() - 1 {
        0 => String::new(),
        others => format!(", and {others} others"),
    };
    format!(", while a message of {bytes} bytes from rank {peer} with tag {tag}{others} waited")
}

/// A rank of which only the number is known.
pub(crate) const fn who(rank: Rank) -> RankOnHost {
    RankOnHost { rank, host: None }
}
