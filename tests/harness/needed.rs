//! What a machine may lack: skipped aloud, or a failure where it must be there.

use std::io::Write;
use std::process::{Command, Stdio};

/// Whether all `programs` of `name` are there.
///
/// # Panics
/// If one is not and `RINGFOLD_TEST_REQUIRE` has `name`.
#[must_use]
pub fn are_there(name: &str, programs: &[&str]) -> bool {
    let lookup = ["sh", "-c", "for p; do command -v \"$p\" || exit 1; done", "sh"];
    succeeds(name, &[&lookup[..], programs].concat())
}

/// Whether this may be done as root.
///
/// # Panics
/// As [`are_there`].
#[must_use]
pub fn is_root(name: &str) -> bool {
    rustix::process::geteuid().is_root() || skipped(name, "not root")
}

/// Whether `command`, which `name` needs, succeeds.
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

/// Says so, and returns `false`.
///
/// # Panics
/// As [`are_there`].
#[must_use]
pub fn skipped(name: &str, why: &str) -> bool {
    #[expect(clippy::disallowed_methods, reason = "asks whether a skip is a failure")]
    let required = std::env::var("RINGFOLD_TEST_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|must| must != name), "{name} cannot run here: {why}");
    // Past the harness, which keeps what is printed to itself.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: {name} ({why})").expect("there is a standard error");
    false
}
