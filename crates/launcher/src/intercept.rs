//! How a program that launches ranks plays the parts of guardian, keeper and trampoline itself.

use std::process::ExitCode;

/// The argument that makes a program the guardian of a host, which starts a keeper.
pub(crate) const GUARDIAN: &str = "--ringfold-guardian";

/// The argument that makes a program a keeper; the process number of its guardian follows.
pub(crate) const KEEPER: &str = "--ringfold-keeper";

/// The argument that makes a program a trampoline.
pub(crate) const TRAMPOLINE: &str = "--ringfold-trampoline";

/// Takes over if this process was started as a part of a launch, that is if its first argument is
/// `--ringfold-guardian`, `--ringfold-keeper` or `--ringfold-trampoline`: returns the status with
/// which `main` must return at once. Returns `None` in any other process, having done nothing.
///
/// Every program that calls [`run`](crate::run()) must call this first in `main`, before it starts
/// a thread or reads an argument, because `run` starts the program itself in these parts:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(status) = ringfold_launcher::intercept() {
///         return status;
///     }
///     ExitCode::SUCCESS
/// }
/// ```
#[must_use = "main must return this status, if there is one"]
pub fn intercept() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let part = args.next()?;
    if part == GUARDIAN {
        Some(crate::guardian::guard())
    } else if part == KEEPER {
        Some(crate::keeper::keep(args.next().and_then(|pid| pid.to_str()?.parse().ok())))
    } else if part == TRAMPOLINE {
        Some(crate::trampoline::jump())
    } else {
        None
    }
}
