//! Requirements of tests. A test without them is skipped with a note, or fails if they must exist.

use std::io::Write;
use std::process::{Command, Stdio};

/// Returns whether all `programs` are installed. `name` is the requirement's name.
///
/// # Panics
/// If one is missing and `RINGFOLD_TEST_REQUIRE` contains `name`.
#[must_use]
pub fn are_there(name: &str, programs: &[&str]) -> bool {
    let lookup = ["sh", "-c", "for p; do command -v \"$p\" || exit 1; done", "sh"];
    succeeds(name, &[&lookup[..], programs].concat())
}

/// Returns whether this process runs as root.
///
/// # Panics
/// As [`are_there`].
#[must_use]
pub fn is_root(name: &str) -> bool {
    rustix::process::geteuid().is_root() || skipped(name, "not root")
}

/// Returns whether `command` succeeds, which the requirement `name` needs.
///
/// # Panics
/// As [`are_there`].
#[must_use]
pub fn succeeds(name: &str, command: &[&str]) -> bool {
    let status = Command::new(command[0])
        .args(&command[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success()) || skipped(name, &command.join(" "))
}

/// Prints that `name` is skipped, and returns `false`.
///
/// # Panics
/// As [`are_there`].
#[must_use]
pub fn skipped(name: &str, why: &str) -> bool {
    #[expect(clippy::disallowed_methods, reason = "asks whether a skip is a failure")]
    let required = std::env::var("RINGFOLD_TEST_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|must| must != name), "{name} cannot run here: {why}");
    // Written to stderr directly, because the harness captures `eprintln`.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: {name} ({why})").expect("there is a standard error");
    false
}
