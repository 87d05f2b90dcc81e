//! The commands of `ringfold`, as their users give them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its seed"
)]

mod doctor;
mod measure;
mod plan;
mod precision;
mod topo;
mod tune;

use std::process::Command;

use ringfold_harness::Outcome;

/// The output of a command that succeeds and has nothing to say on standard error.
fn printed(arguments: &[&str]) -> String {
    let done = ringfold(arguments);
    assert!(done.stderr.is_empty(), "{arguments:?}: {done:?}");
    done.printed()
}

/// The error of a command with wrong input, which prints nothing else.
fn refused(arguments: &[&str]) -> String {
    let done = ringfold(arguments);
    assert_eq!((done.code(), &*done.stdout), (2, ""), "{arguments:?}: {done:?}");
    done.stderr
}

fn ringfold(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfold"));
    Outcome::of(command.args(arguments).env_remove("RINGFOLD_TOPO_FILE"))
}
