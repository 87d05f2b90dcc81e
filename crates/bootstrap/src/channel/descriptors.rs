//! File descriptors for a connection to each rank: this module raises a soft limit that is too low
//! up to the hard limit.

use std::fs;

use ringfold_types::limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors beside the connections: the listener, the event loop, and files of the program.
const SPARE: u64 = 32;

/// The hard limit is too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFew {
    /// Descriptors that this process needs in all.
    pub(crate) needed: u64,
    /// The hard limit.
    pub(crate) limit: u64,
}

/// Ensures that this process may open `connections` more descriptors, besides those of unproven
/// connections.
///
/// # Errors
/// The hard limit is too low.
pub(crate) fn provide(connections: usize) -> Result<(), TooFew> {
    let open = fs::read_dir("/proc/self/fd").map_or(SPARE, |open| open.count() as u64);
    let needed = open + connections as u64 + SPARE;
    let wanted = needed + limits::HANDSHAKES_MAX as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|soft| soft >= wanted) {
        return Ok(());
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!("raised the limit of open files from {current:?} to {maximum:?}"),
        Err(e) => tracing::debug!("cannot raise the limit of open files: {e}"),
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(TooFew { needed, limit }),
        _ => Ok(()),
    }
}
