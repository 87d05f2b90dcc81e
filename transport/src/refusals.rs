//! Logs refused connections, ever less often: a million attempts cost a few lines.

use std::time::{Duration, Instant};

/// The time without a further line after the first one. It doubles with each line.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The time of the next log line, and the refusals since the last one.
#[derive(Debug)]
pub(crate) struct Refusals {
    next: Option<Instant>,
    pause: Duration,
    suppressed: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { next: None, pause: PAUSE, suppressed: 0 }
    }
}

impl Refusals {
    pub(crate) fn log(&mut self, reason: &str) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            self.suppressed += 1;
            return;
        }
        let suppressed = self.suppressed;
        tracing::warn!(reason, suppressed, "refused a connection");
        self.next = Some(now + self.pause);
        self.pause = PAUSE_MAX.min(2 * self.pause);
        self.suppressed = 0;
    }
}
