//! Detects that the job has failed, even after this process was stopped for a while.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{AwaitedMessage, CallName, Control, Finished, is_traced};
use ringfold_transport::ticks;
use rustix::time::{ClockId, clock_gettime};

use crate::error::CallError;

/// Time in milliseconds without a check of the control connection after which a rank may have been
/// stopped. It then reads the connection before it continues a call.
const PAUSE_MS: i64 = 100;

/// How often a caller waits for the control thread before it gives the call up. The control thread
/// then had no CPU for seconds.
const CATCH_UPS_MAX: usize = 10;

/// The shortest time between two calls of a wait hook, in milliseconds.
const HOOK_EVERY_MS: i64 = 50;

/// A wait for the same message after a shorter time than this goes on. Bindings wait in pieces, in
/// between which they look for signals.
const SAME_WAIT: Duration = Duration::from_millis(50);

/// A function of the user that runs now and then while a call waits.
pub(crate) struct WaitHook(Box<dyn FnMut() + Send>);

impl fmt::Debug for WaitHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitHook")
    }
}

/// The rank's end of the control plane, and when its caller last checked it.
///
/// The control thread reads the control connection while the caller computes. A process that was
/// stopped (by a signal, a debugger or a paused machine) resumes all of its threads at once. Its
/// caller could then go on with a call that the other ranks gave up long ago.
#[derive(Debug)]
pub(crate) struct Watch {
    control: Control,
    /// When the caller last checked, in milliseconds.
    checked_ms: Cell<i64>,
    hook: RefCell<Option<WaitHook>>,
    /// When the hook last ran, in milliseconds.
    hooked_ms: Cell<i64>,
    /// The message for which this rank waits.
    awaited: Cell<Option<AwaitedMessage>>,
    /// The message for which it waited last, and the end of that wait.
    waited: Cell<Option<(AwaitedMessage, Instant)>>,
}

impl Watch {
    pub(crate) fn new(control: Control) -> Self {
        let now = now_ms();
        let (checked_ms, hooked_ms) = (Cell::new(now), Cell::new(now));
        let (awaited, waited) = (Cell::new(None), Cell::new(None));
        Self { control, checked_ms, hook: RefCell::new(None), hooked_ms, awaited, waited }
    }

    /// Records that call number `seq` begins.
    #[inline]
    pub(crate) fn entered(&self, seq: u64, name: &CallName) {
        self.control.entered(seq, name, ticks());
    }

    /// Records that call number `seq` ended in its first moment. A clock would take longer.
    #[inline]
    pub(crate) fn finished_at_once(&self, seq: u64) {
        self.control.finished(seq, Finished::Exchange);
    }

    /// Records that call number `seq` ends now. That of a short one is not worth a stamp.
    #[inline]
    pub(crate) fn finished(&self, seq: u64, is_short: bool) {
        let has_stamp = !is_short || is_traced();
        self.control.finished(seq, if has_stamp { Finished::At(ticks()) } else { Finished::Short });
    }

    /// Records that a message between this rank and another has ended.
    #[inline]
    pub(crate) fn message_ended(&self) {
        self.control.message_ended(ticks());
    }

    /// Records that this rank waits for a message, until `has_waited`.
    #[cold]
    pub(crate) fn waits(&self, message: AwaitedMessage) {
        if self.awaited.replace(Some(message)) == Some(message) {
            return;
        }
        let goes_on = self
            .waited
            .take()
            .is_some_and(|(last, end)| last == message && end.elapsed() < SAME_WAIT);
        self.control.waits(message, (!goes_on).then(ticks));
    }

    /// Records that this rank waits for no message any more.
    pub(crate) fn has_waited(&self) {
        if let Some(message) = self.awaited.take() {
            self.control.waited(ticks());
            self.waited.set(Some((message, Instant::now())));
        }
    }

    /// Sets the function that runs while a call waits.
    pub(crate) fn set_hook(&self, hook: Option<Box<dyn FnMut() + Send>>) {
        drop(self.hook.replace(hook.map(WaitHook)));
    }

    /// Runs the hook after a park, unless it has run a moment ago.
    pub(crate) fn has_parked(&self) {
        if let Some(hook) = &mut *self.hook.borrow_mut()
            && now_ms() - self.hooked_ms.get() >= HOOK_EVERY_MS
        {
            (hook.0)();
            self.hooked_ms.set(now_ms());
        }
    }

    pub(crate) fn into_control(self) -> Control {
        self.control
    }

    /// An error once the job has failed. One atomic load while it has not.
    #[inline]
    pub(crate) fn check_abort(&self) -> Result<(), CallError> {
        self.control.failure_cause().map_or(Ok(()), |cause| Err(CallError::FailureCause(cause)))
    }

    /// Fails once the job has failed. After a pause it first waits until the control thread has
    /// read the messages that the coordinator sent meanwhile. A call must make this check before it
    /// writes to a peer's memory, and at its end. Without a pause the check takes a few
    /// nanoseconds.
    #[inline]
    pub(crate) fn check_abort_after_pause(&self) -> Result<(), CallError> {
        if self.may_have_paused() {
            self.catch_up()?;
        }
        self.check_abort()
    }

    /// Waits until the control thread has caught up.
    #[cold]
    fn catch_up(&self) -> Result<(), CallError> {
        for _ in 0..CATCH_UPS_MAX {
            if self.control.catch_up() {
                self.checked_ms.set(now_ms());
                return Ok(());
            }
            self.check_abort()?;
        }
        // Without the control plane this rank cannot know whether the job goes on.
        Err(CallError::Overdue)
    }

    /// Whether there was no pause, and the job has not failed.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.may_have_paused() && self.control.failure_cause().is_none()
    }

    /// Whether the last check is so long ago that this process may have been stopped since. If not,
    /// this was a check.
    #[inline]
    fn may_have_paused(&self) -> bool {
        let now = now_ms();
        if now - self.checked_ms.get() > PAUSE_MS {
            return true;
        }
        self.checked_ms.set(now);
        false
    }
}

impl Deref for Watch {
    type Target = Control;

    #[inline]
    fn deref(&self) -> &Control {
        &self.control
    }
}

/// The time in milliseconds. The clock runs on while a process is stopped, and reading it takes no
/// system call.
#[inline]
fn now_ms() -> i64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
