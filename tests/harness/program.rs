//! The programs of the workspace, built with the profile of the tests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of a binary, as in `ringrun`.
///
/// The first call builds all binaries: cargo builds a binary for the tests of its own package only.
///
/// # Panics
/// If the build fails or has no such program.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    existing(built().join(name))
}

/// Returns the path of a binary of this package, which cargo has built for its suites.
///
/// # Panics
/// If there is no such program.
#[must_use]
pub fn own(name: &str) -> PathBuf {
    existing(folder().join(name))
}

/// Returns the path of an example, as in `train`.
///
/// # Panics
/// As [`binary`].
#[must_use]
pub fn example(name: &str) -> PathBuf {
    existing(built().join("examples").join(name))
}

/// Returns the folder of the libraries for C.
///
/// # Panics
/// As [`binary`].
#[must_use]
pub fn libraries() -> &'static Path {
    built()
}

/// Builds another suite, as in `conformance`, and returns its path.
///
/// # Panics
/// If the build fails or has no such suite.
#[must_use]
pub fn suite(name: &str) -> PathBuf {
    let mut cargo = cargo("test");
    let output = cargo.args(["--no-run", "--test", name]).output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    // `  Executable tests/conformance/main.rs (target/debug/deps/conformance-0123456789abcdef)`
    let mut paths = said.lines().filter_map(|line| {
        let (_, path) = line.trim_start().strip_prefix("Executable ")?.split_once(" (")?;
        path.strip_suffix(')')
    });
    let path = paths.next_back().unwrap_or_else(|| panic!("no suite {name}: {said}"));
    // A relative path starts at the root of the workspace.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("of the workspace");
    existing(root.join(path))
}

fn existing(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "the workspace makes no {}", path.display());
    path
}

/// Builds all binaries, examples and libraries once, and returns their folder.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let status = cargo("build").args(["--quiet", "--lib", "--bins", "--examples"]).status();
        let status = status.expect("cargo runs");
        assert!(status.success(), "the programs of the workspace do not build");
        folder()
    })
}

/// Returns the target folder of the running suite's profile.
fn folder() -> PathBuf {
    // target/PROFILE/deps/SUITE is running.
    let suite = env::current_exe().expect("a test knows where it is");
    suite.ancestors().nth(2).expect("tests lie in target/PROFILE/deps").to_owned()
}

/// Returns a cargo command that builds with the profile of the running suite.
fn cargo(command: &str) -> Command {
    let folder = folder();
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().expect("profiles lie in the target folder");
    let mut cargo = Command::new(env!("CARGO"));
    // The whole workspace, so that dependencies keep the features that the tests have.
    cargo.args([command, "--workspace", "--profile", profile, "--target-dir"]).arg(target);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}
