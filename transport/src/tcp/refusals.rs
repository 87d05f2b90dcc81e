//! Logs refused connections, at most once a second: a thousand attempts cost one line.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// The time of the last log line, and the refusals since then.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<Instant>,
    suppressed: u64,
}

impl Refusals {
    pub(super) fn log(&mut self, reason: &str) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            self.suppressed += 1;
            return;
        }
        let suppressed = self.suppressed;
        tracing::warn!(reason, suppressed, "refused a connection that does not belong to this job");
        self.last = Some(Instant::now());
        self.suppressed = 0;
    }
}
