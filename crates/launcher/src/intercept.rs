//! Lets a program that launches ranks also act as guardian, node agent and trampoline.

use std::process::ExitCode;

use crate::guardian::{self, GUARDIAN};
use crate::node_agent::{self, NODE_AGENT};
use crate::sentinel::{self, SENTINEL};
use crate::trampoline::{self, TRAMPOLINE};

/// Runs this process's part of a launch, if its first argument is `--ringfold-guardian`,
/// `--ringfold-node-agent`, `--ringfold-sentinel` or `--ringfold-trampoline`. Then it returns the
/// status with which `main` must return. In any other process it does nothing and returns `None`.
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
    let role = args.next()?;
    if role == GUARDIAN {
        Some(guardian::guard())
    } else if role == NODE_AGENT {
        Some(node_agent::run(args.next().and_then(|pid| pid.to_str()?.parse().ok())))
    } else if role == SENTINEL {
        let pid = args.next().and_then(|pid| pid.to_str()?.parse().ok());
        Some(sentinel::watch(pid, &args.next().unwrap_or_default().to_string_lossy()))
    } else if role == TRAMPOLINE {
        Some(trampoline::jump())
    } else {
        None
    }
}
