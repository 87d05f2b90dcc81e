//! The part of a simulation that is done.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The part that is done of the present work: the programs of all ranks, or the run of these. Other
/// threads may read it meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicUsize,
    all: AtomicUsize,
}

impl Progress {
    /// Begins work of so many units.
    pub(crate) fn begin(&self, all: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, units: usize) {
        self.done.fetch_add(units, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, units: usize) {
        self.done.store(units, Ordering::Relaxed);
    }

    /// The part, from 0 to 1.
    #[must_use]
    pub fn part(&self) -> f64 {
        let [done, all] = [&self.done, &self.all].map(|it| it.load(Ordering::Relaxed));
        (done as f64 / all.max(1) as f64).min(1.0)
    }
}
