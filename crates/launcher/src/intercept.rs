//! How a program that launches ranks plays the parts of guardian, keeper and trampoline itself.

use std::process::ExitCode;

use crate::guardian::{self, GUARDIAN};
use crate::keeper::{self, KEEPER};
use crate::trampoline::{self, TRAMPOLINE};

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
        Some(guardian::guard())
    } else if part == KEEPER {
        Some(keeper::keep(args.next().and_then(|pid| pid.to_str()?.parse().ok())))
    } else if part == TRAMPOLINE {
        Some(trampoline::jump())
    } else {
        None
    }
}
