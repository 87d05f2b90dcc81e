//! The log of programs that keep none.

use std::io::{self, IsTerminal};
use std::sync::Once;

use tracing::subscriber::NoSubscriber;

use crate::config::Config;

/// Calls `join` with a log: the program's, or one of the level that the user sets. Without either,
/// warnings are logged meanwhile, since ranks that wait in vain say why.
pub(super) fn logged<R>(config: &Config, join: impl FnOnce() -> R) -> R {
    start(config);
    if tracing::dispatcher::get_default(|log| !log.is::<NoSubscriber>()) {
        return join();
    }
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    let log = log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing::subscriber::with_default(log.finish(), join)
}

/// Installs a log for programs that have none, if the user wants to read it.
fn start(config: &Config) {
    static ONCE: Once = Once::new();
    let Some(level) = config.debug else { return };
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
        // A program that has a subscriber of its own keeps it.
        log.try_init().ok();
    });
}
