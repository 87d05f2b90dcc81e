//! Guards operations, as methods of [`Engine`]: an operation that fails or panics makes the
//! communicator fail for good.

use std::sync::Arc;

use ringfold_bootstrap::FailureCause;

use crate::core::Core;
use crate::engine::Engine;
use crate::error::{CallError, Error, Failure, Operation};
use crate::health::{report_of, who};
use crate::watch::Watch;

impl Engine {
    /// Performs a part of the operation that `named` gives for the number of the latest collective.
    /// If the part panics, no peer uses the call's memory any longer, the communicator has failed,
    /// and the other ranks learn of the failure.
    #[inline]
    pub(crate) fn guarded<R>(
        &mut self,
        named: impl Fn(u64) -> Operation,
        part: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let guard = Guard { engine: self, named };
        let result = part(&mut *guard.engine);
        std::mem::forget(guard);
        result
    }

    /// Performs a `part` of the started calls, as [`guarded`](Self::guarded) does.
    pub(crate) fn guarded_started<R>(&mut self, part: impl FnOnce(&mut Self) -> R) -> R {
        let Some(operation) = self.started() else { return part(self) };
        self.guarded(move |_| operation, part)
    }

    /// Performs a part of an operation, as [`guarded`](Self::guarded) does. An error makes the
    /// communicator fail for good.
    pub(crate) fn attempt<R>(
        &mut self,
        named: impl Fn(u64) -> Operation,
        part: impl FnOnce(&mut Core, &Watch) -> Result<R, CallError>,
    ) -> Result<R, Error> {
        let outcome = self.guarded(&named, |it| part(&mut it.core, it.health.watch()));
        outcome.map_err(|error| self.fail_in(named(self.core.seq), error))
    }

    /// Makes the communicator fail for good, in `operation`.
    #[cold]
    pub(crate) fn fail_in(&mut self, operation: Operation, error: CallError) -> Error {
        let operation = self.core.post.blamed.take().unwrap_or(operation);
        let cause = report_of(&self.core, operation, error)
            .map_or_else(|cause| cause, |(report, own)| self.health.agree(report, own));
        Error::Failed(self.end_with(operation, cause))
    }

    /// Makes the communicator fail for good, because `operation` panicked.
    #[cold]
    fn give_up(&mut self, operation: Operation) {
        self.core.router.withdraw();
        self.core.cache.forget();
        if self.health.failed.is_some() {
            return self.end_failed();
        }
        let reason = format!("{operation} panicked");
        self.health.watch().aborter().abort(reason.clone());
        let own = || Arc::new(FailureCause::Aborted { who: who(self.core.rank), reason });
        let cause = self.health.watch().failure_cause().unwrap_or_else(own);
        self.end_with(operation, cause);
    }

    /// Ends all started calls, because this rank panics.
    pub(crate) fn give_up_all(&mut self) {
        if let Some(operation) = self.started() {
            self.give_up(operation);
        }
    }

    pub(crate) fn end_with(
        &mut self,
        operation: Operation,
        cause: Arc<FailureCause>,
    ) -> Arc<Failure> {
        let (rank, group) = (self.core.rank, self.group.clone());
        let failure = Arc::new(Failure { rank, group, operation, cause });
        tracing::error!("{failure}");
        self.health.failed = Some(Arc::clone(&failure));
        self.core.cache.forget();
        if self.has_work() {
            // From here on only the owners of the started calls' memory use it.
            self.core.give_up_started();
        }
        self.end_all(&failure);
        failure
    }
}

/// A guard of an operation that runs. It is dropped only if the operation panics.
struct Guard<'c, N: Fn(u64) -> Operation> {
    engine: &'c mut Engine,
    named: N,
}

impl<N: Fn(u64) -> Operation> Drop for Guard<'_, N> {
    fn drop(&mut self) {
        let operation = (self.named)(self.engine.core.seq);
        self.engine.give_up(operation);
    }
}
