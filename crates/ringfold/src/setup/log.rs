//! The log of programs that have no `tracing` subscriber.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::{Once, OnceLock};
use std::time::Instant;

use ringfold_types::Rank;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::config::Config;

/// The rank of this process in its first group, and when it began to join.
static FIRST: OnceLock<(Rank, Instant)> = OnceLock::new();

/// The beginning of a line: the time of day, the rank of this process in its first group, and the
/// seconds since it began to join.
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(line)?;
        let Some((rank, begun)) = FIRST.get() else { return Ok(()) };
        write!(line, " rank {rank} {:.3} s", begun.elapsed().as_secs_f64())
    }
}

/// Has all lines from now on name the rank. Only the first group of the process counts.
pub(super) fn name_rank(rank: Rank) {
    FIRST.get_or_init(|| (rank, Instant::now()));
}

/// Calls `join` with a log: that of the program, or one of the level that the user sets. Without
/// either, the library logs warnings during the call: they explain why ranks are missing.
pub(super) fn logged<R>(config: &Config, join: impl FnOnce() -> R) -> R {
    start(config);
    if tracing::dispatcher::get_default(|log| !log.is::<NoSubscriber>()) {
        return join();
    }
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_timer(Stamp);
    let log = log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing::subscriber::with_default(log.finish(), join)
}

/// Installs a log of the level that the user sets, unless the program has one.
fn start(config: &Config) {
    static ONCE: Once = Once::new();
    let Some(level) = config.debug else { return };
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_max_level(level).with_timer(Stamp);
        let log = log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
        // A program that has a subscriber of its own keeps it.
        log.try_init().ok();
    });
}
