//! The log of programs that have no `tracing` subscriber.

use std::io::{self, IsTerminal};
use std::sync::Once;

use tracing::subscriber::NoSubscriber;

use crate::config::Config;

/// Calls `join` with a log: that of the program, or one of the level that the user sets. Without
/// either, the library logs warnings during the call: they explain why ranks are missing.
pub(super) fn logged<R>(config: &Config, join: impl FnOnce() -> R) -> R {
    start(config);
    if tracing::dispatcher::get_default(|log| !log.is::<NoSubscriber>()) {
        return join();
    }
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    let log = log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing::subscriber::with_default(log.finish(), join)
}

/// Installs a log of the level that the user sets, unless the program has one.
fn start(config: &Config) {
    static ONCE: Once = Once::new();
    let Some(level) = config.debug else { return };
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_max_level(level);
        let log = log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
        // A program that has a subscriber of its own keeps it.
        log.try_init().ok();
    });
}
