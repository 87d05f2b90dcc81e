//! The limit of open files. A shell allows fewer by default than many ranks and hosts need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that a process of the launcher opens for itself.
const OTHERS: usize = 64;

/// Lets this process and its children open `count` files beside the usual ones, or as many as the
/// system allows. This never fails: opening a file beyond the limit does.
pub(crate) fn allow(count: usize) {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(count.saturating_add(OTHERS)).unwrap_or(u64::MAX);
    if limit.current.is_some_and(|current| current < needed) {
        let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).unwrap_or_default();
    }
}
