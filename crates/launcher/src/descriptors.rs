//! The limit of open files: a shell allows fewer by default than many ranks and hosts need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process of the launcher opens beside its hosts and ranks.
const OTHERS: usize = 64;

/// Lets this process, and those that it starts, have `count` files open beside the usual ones, or as
/// many as the system allows. Where that is too few, what needs the next one says so.
pub(crate) fn allow(count: usize) {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(count.saturating_add(OTHERS)).unwrap_or(u64::MAX);
    if limit.current.is_some_and(|current| current < needed) {
        let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).unwrap_or_default();
    }
}
