//! Tells the log about connections that were refused, but no more often than once a second: who
//! knocks a thousand times costs one line.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// What was logged last, and how much was not.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    last: Option<Instant>,
    unsaid: u64,
}

impl Strangers {
    pub(super) fn log(&mut self, reason: &str) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            self.unsaid += 1;
            return;
        }
        let unsaid = self.unsaid;
        tracing::warn!(reason, unsaid, "refused a connection that is none of this job's");
        self.last = Some(Instant::now());
        self.unsaid = 0;
    }
}
