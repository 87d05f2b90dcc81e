//! Threads for work that may block, beside the caller's.

use std::thread;

/// Runs `work` on a thread of its own.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name("ringfold-net".into());
    if let Err(e) = thread.spawn(work) {
        tracing::warn!("cannot start a thread for in-network reduction: {e}");
    }
}
