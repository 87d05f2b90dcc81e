//! Waits until work is done: spins while that pays, then yields, then parks.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringfold_bootstrap::AwaitedMessage;
use ringfold_collectives::Progress;
use ringfold_transport::ticks;

use crate::backoff::{Backoff, Deadline, Parked, Pause, WaitPolicy, park};
use crate::error::CallError;
use crate::router::{Router, WAKE_FDS_MAX};
use crate::timing::Timing;
use crate::watch::Watch;

/// Work that a waiting caller advances.
pub(crate) trait Work {
    /// Performs the operations that are possible now, at most about `budget` of them.
    ///
    /// # Errors
    /// The work cannot go on. Peers may use the memory that it lent them until `Router::withdraw`.
    fn advance(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError>;

    /// Lends long buffers of the work to the transports. They are released when the work has ended.
    fn lease(&mut self, _router: &mut Router) {}

    /// Whether the transports have sent all bytes of the work that is done.
    fn is_flushed(&self, router: &Router) -> bool {
        router.is_flushed()
    }

    /// The longest park before the next advance, where no event wakes the thread.
    fn park_limit(&mut self) -> Duration {
        Duration::MAX
    }

    /// Checks, before a park, whether a rank for which this one waits is in another call or has
    /// left.
    ///
    /// # Errors
    /// `CallError::Foreign` or `CallError::Left` with that rank.
    fn check_peers(&mut self, _router: &Router, _watch: &Watch) -> Result<(), CallError> {
        Ok(())
    }

    /// The message for which the work waits, for the record; `None` if it is a logged call.
    fn awaited(&mut self) -> Option<AwaitedMessage> {
        None
    }
}

/// Calls or messages that a waiting thread drives until they are done.
pub(crate) trait Drive {
    /// Advances all work that is possible now.
    fn advance(&mut self) -> Result<Progress, CallError>;
    /// Whether the transports have sent all bytes of the work that is done.
    fn is_flushed(&self) -> bool;
    /// Polls the transports. Whether one of them made progress.
    fn poll(&mut self) -> Result<bool, CallError>;
    /// Whether only a poll may bring the bytes that the last advance did not find.
    fn lacks_poll(&self) -> bool;
    /// Fails once the job has failed.
    fn check_abort(&mut self) -> Result<(), CallError>;
    /// Whether a peer may be copying a message of this rank.
    fn has_reader(&mut self) -> bool;
    /// Parks until a peer or a cause wakes this rank, or for `limit`. Does not park if something
    /// moves after all.
    fn park(&mut self, limit: Duration) -> Result<Parked, CallError>;
    /// The control plane.
    fn watch(&self) -> &Watch;
}

/// One piece of work over the transports.
struct Driven<'w, W, T> {
    work: &'w mut W,
    router: &'w mut Router,
    watch: &'w Watch,
    timing: T,
}

/// Advances `work` until it is done and the transports have sent all of its bytes. Waits while
/// nothing moves, for at most `timeout`. Returns whether it waited.
///
/// # Errors
/// The job has failed, or the time is up. Peers no longer use memory of the work.
#[inline]
pub(crate) fn block_on(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    policy: &mut WaitPolicy,
    timeout: Duration,
    timing: impl Timing,
) -> Result<Waited, CallError> {
    work.lease(router);
    let mut driven = Driven { work, router, watch, timing };
    let outcome = match driven.advance() {
        Ok(Progress::Done) if driven.is_flushed() => Ok(Waited::No),
        Ok(_) => {
            let finished = finish(&mut driven, policy, timeout);
            watch.has_waited();
            finished
        }
        Err(error) => Err(error),
    };
    // The other ranks may have given the call up while this process was stopped.
    let outcome = outcome.and_then(|waited| watch.check_abort_after_pause().map(|()| waited));
    if outcome.is_err() {
        // From here on only the caller uses its memory.
        router.withdraw();
    }
    router.release();
    outcome
}

/// Whether a thread waited. Waits that end within the first spins do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waited {
    #[default]
    No,
    Yes,
}

/// The time for which a thread waits.
#[derive(Default)]
struct Wait {
    since: Option<u64>,
    waited: Waited,
}

impl Wait {
    fn begin(&mut self) {
        self.since.get_or_insert_with(ticks);
    }

    fn end(&mut self, driven: &impl Drive) {
        if let Some(since) = self.since.take() {
            self.waited = Waited::Yes;
            driven.watch().count_wait(since, ticks());
        }
    }
}

/// Drives until everything is done and sent. Waits while nothing moves, for at most `timeout`.
/// Returns whether it waited.
///
/// # Errors
/// The job has failed, or the time is up.
pub(crate) fn finish(
    driven: &mut impl Drive,
    policy: &mut WaitPolicy,
    timeout: Duration,
) -> Result<Waited, CallError> {
    let (mut early_spins, mut early_yields) = (policy.early_spins(), policy.early_yields());
    let mut backoff = Backoff::default();
    let mut deadline = Deadline::new(timeout);
    let mut wait = Wait::default();
    loop {
        match driven.advance()? {
            Progress::Done if driven.is_flushed() => {
                policy.learn(backoff.ended());
                wait.end(driven);
                return Ok(wait.waited);
            }
            Progress::Done => {}
            Progress::Moved => {
                policy.learn(backoff.ended());
                wait.end(driven);
                (backoff, early_yields) = (Backoff::default(), policy.early_yields());
                if early_spins > 0 || early_yields > 0 {
                    continue;
                }
            }
            Progress::Idle if early_spins > 0 => {
                early_spins -= 1;
                // Bytes of shared memory need no poll.
                if driven.lacks_poll() || early_spins.is_multiple_of(16) {
                    driven.poll()?;
                }
                std::hint::spin_loop();
                continue;
            }
            Progress::Idle if early_yields > 0 => {
                early_yields -= 1;
                wait.begin();
                driven.check_abort()?;
                driven.poll()?;
                std::thread::yield_now();
                continue;
            }
            Progress::Idle => {}
        }
        let polled = driven.poll()?;
        if backoff.is_worth_a_pass(polled) {
            driven.check_abort()?;
            continue;
        }
        let Some(pause) = backoff.next(*policy) else {
            std::hint::spin_loop();
            continue;
        };
        driven.check_abort()?;
        wait.begin();
        match pause {
            Pause::Spin => {}
            Pause::Yield => std::thread::yield_now(),
            Pause::Park if driven.has_reader() && backoff.may_yield_to_reader() => {
                std::thread::yield_now();
            }
            Pause::Park => match driven.park(deadline.park_limit())? {
                Parked::Not => backoff = Backoff::default(),
                parked if deadline.is_over_after(parked) => return Err(CallError::Overdue),
                _ => {}
            },
        }
    }
}

impl<W: Work, T: Timing> Drive for Driven<'_, W, T> {
    #[inline]
    fn advance(&mut self) -> Result<Progress, CallError> {
        let Self { work, router, watch, timing } = self;
        timing.attempt(|| work.advance(router, watch, usize::MAX), has_moved)
    }

    #[inline]
    fn is_flushed(&self) -> bool {
        self.work.is_flushed(self.router)
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, CallError> {
        let Self { router, timing, .. } = self;
        Ok(timing.attempt(|| router.poll(), |polled| !matches!(polled, Ok(false)))?)
    }

    #[inline]
    fn lacks_poll(&self) -> bool {
        self.router.lacks_poll()
    }

    #[inline]
    fn check_abort(&mut self) -> Result<(), CallError> {
        self.watch.check_abort()
    }

    fn has_reader(&mut self) -> bool {
        self.router.has_reader()
    }

    fn park(&mut self, limit: Duration) -> Result<Parked, CallError> {
        self.router.arm();
        let awake = self.is_awake();
        let Self { work, router, watch, .. } = self;
        let parked = if matches!(awake, Ok(false)) {
            let longest = work.park_limit();
            work.awaited().into_iter().for_each(|message| watch.waits(message));
            let is_woken = park_on(router, watch, None, limit.min(longest));
            if is_woken || longest < limit { Parked::Woken } else { Parked::Whole }
        } else {
            Parked::Not
        };
        router.disarm();
        watch.has_parked();
        awake.map(|_| parked)
    }

    fn watch(&self) -> &Watch {
        self.watch
    }
}

impl<W: Work, T: Timing> Driven<'_, W, T> {
    /// Whether something moves after all. Peers ring this rank from now on.
    fn is_awake(&mut self) -> Result<bool, CallError> {
        let polled = self.poll()?;
        let awake = match self.advance()? {
            Progress::Moved => true,
            Progress::Done => polled || self.is_flushed(),
            Progress::Idle => polled,
        };
        if !awake {
            self.work.check_peers(self.router, self.watch)?;
        }
        Ok(awake)
    }
}

/// Parks until a peer, a cause or `other` wakes this rank, or for `limit`. Whether it was woken.
pub(crate) fn park_on(
    router: &Router,
    watch: &Watch,
    other: Option<BorrowedFd<'_>>,
    limit: Duration,
) -> bool {
    let fds: [Option<BorrowedFd<'_>>; WAKE_FDS_MAX + 2] = {
        let mut fds = router.wake_fds().chain([watch.wake_fd()]).chain(other);
        std::array::from_fn(|_| fds.next())
    };
    park(&fds, limit)
}

/// Whether an attempt has moved something, or failed.
const fn has_moved(progress: &Result<Progress, CallError>) -> bool {
    !matches!(progress, Ok(Progress::Idle))
}
