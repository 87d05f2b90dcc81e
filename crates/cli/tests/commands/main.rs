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

use std::process::{Command, Output};

/// The output of a command that succeeds and has nothing to say on standard error.
fn printed(arguments: &[&str]) -> String {
    let output = ringfold(arguments);
    let (text, error) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && error.is_empty(), "{arguments:?}: {error}");
    String::from_utf8_lossy(&text).into_owned()
}

fn ringfold(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfold")).args(arguments).output().unwrap()
}
