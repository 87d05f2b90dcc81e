//! Times the parts of a call for a profile: its waiting for peers, and its combining.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Times the parts of a call.
pub(crate) trait Timing: Copy {
    /// Performs an attempt to go on with the call. The time from the first attempt that moves
    /// nothing to the next one that moves something is waiting.
    fn attempt<R>(self, attempt: impl FnOnce() -> R, has_moved: impl FnOnce(&R) -> bool) -> R;

    /// Performs a part of an attempt that combines elements.
    fn combining<R>(self, combine: impl FnOnce() -> R) -> R;
}

/// The timing of calls without a profile, which reads no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untimed;

impl Timing for Untimed {
    #[inline]
    fn attempt<R>(self, attempt: impl FnOnce() -> R, _: impl FnOnce(&R) -> bool) -> R {
        attempt()
    }

    #[inline]
    fn combining<R>(self, combine: impl FnOnce() -> R) -> R {
        combine()
    }
}

/// The times of one call. The two do not overlap, because an attempt that combines elements moves
/// something.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    waiting: Cell<Duration>,
    combining: Cell<Duration>,
    /// The beginning of the first attempt in a row that moved nothing.
    idle_since: Cell<Option<Instant>>,
}

impl Timer {
    pub(crate) const fn waiting(&self) -> Duration {
        self.waiting.get()
    }

    pub(crate) const fn combining_time(&self) -> Duration {
        self.combining.get()
    }
}

impl Timing for &Timer {
    fn attempt<R>(self, attempt: impl FnOnce() -> R, has_moved: impl FnOnce(&R) -> bool) -> R {
        let begin = Instant::now();
        let outcome = attempt();
        if !has_moved(&outcome) {
            self.idle_since.set(self.idle_since.get().or(Some(begin)));
        } else if let Some(since) = self.idle_since.take() {
            self.waiting.set(self.waiting.get() + (begin - since));
        }
        outcome
    }

    fn combining<R>(self, combine: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let outcome = combine();
        self.combining.set(self.combining.get() + begin.elapsed());
        outcome
    }
}
