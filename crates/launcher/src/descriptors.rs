//! The limits that a shell sets: open files and processes.

use std::io;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that a process of the launcher opens for itself.
const OTHERS: usize = 64;

/// The number of files that a process of the launcher cannot do without.
const LEAST: usize = 16;

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

/// Checks that this process can open the files that it cannot do without.
///
/// # Errors
/// The limit is too low.
pub(crate) fn check() -> io::Result<()> {
    allow(0);
    let open = |_| fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0);
    let opened = (0..LEAST).map(open).collect::<Result<Vec<_>, _>>()?;
    drop(opened);
    Ok(())
}

/// The remedy of a shortage, in parentheses after the action that failed.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => " (raise the limit of open files: ulimit -n)",
        Some(Errno::NFILE) => {
            " (this host has too many open files: close some, or raise fs.file-max)"
        }
        Some(Errno::AGAIN) => " (raise the limit of processes and threads: ulimit -u)",
        Some(Errno::NOMEM) => " (free memory on this host)",
        _ => "",
    }
}
