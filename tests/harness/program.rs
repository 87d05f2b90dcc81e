//! The programs of the workspace, as the tests were built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of a binary, as in `ringrun`.
///
/// Builds all of them on first use: cargo builds a binary for the tests of its own package only.
///
/// # Panics
/// If the build fails or makes no such program.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    existing(built().join(name))
}

/// The path of an example, as in `train`.
///
/// # Panics
/// As [`binary`].
#[must_use]
pub fn example(name: &str) -> PathBuf {
    existing(built().join("examples").join(name))
}

fn existing(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "the workspace makes no {}", path.display());
    path
}

/// The folder that binaries lie in, once they do.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/PROFILE/deps/SUITE is running.
        let suite = env::current_exe().expect("a test knows where it is");
        let folder = suite.ancestors().nth(2).expect("tests lie in target/PROFILE/deps");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let target = folder.parent().expect("profiles lie in the target folder");
        // The whole workspace, so that dependencies keep the features that the tests have.
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--bins", "--examples", "--profile", profile])
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the programs of the workspace do not build");
        folder.to_owned()
    })
}
