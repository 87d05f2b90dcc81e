//! The fake libibverbs (`tests/fake-verbs`), whose devices exist only in the process that loads it.
//! A test runs itself again in a child process, whose loader finds the fake first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::needed;

/// The name of the tests in `RINGFOLD_TEST_REQUIRE`.
const NAME: &str = "fake-verbs";
/// The variable that is set in the child processes.
const MARK: &str = "RINGFOLD_FAKE_VERBS";

/// Lists the devices of its first argument in a file system that only the program sees. The rest is
/// the program.
const LISTED: &str = r#"mount -t tmpfs none /sys/class; cd /sys/class; mkdir infiniband
    for device in $1; do mkdir infiniband/"$device"; done
    cd "$0"; shift; exec "$@""#;

/// Runs `body` with the fake libibverbs in a child process, as the test of that name in this
/// program. Without a compiler the test is skipped.
///
/// # Panics
/// The test fails in the child process. As [`needed::skipped`], if it must run.
pub fn run(name: &str, body: impl FnOnce()) {
    run_by(name, body, Command::new);
}

/// As [`run`], in a child process to which the kernel seems to have these devices. That takes root.
///
/// # Panics
/// As [`run`].
pub fn run_listed(name: &str, devices: &str, body: impl FnOnce()) {
    let is_child = variable(MARK).is_some();
    if !is_child && !needed::succeeds(NAME, &["unshare", "-m", "true"]) {
        return;
    }
    let here = std::env::current_dir().expect("a folder");
    run_by(name, body, |program| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-euc", LISTED]).arg(here).arg(devices).arg(program);
        command
    });
}

#[expect(clippy::print_stdout, reason = "seeds and figures of the child process")]
fn run_by(name: &str, body: impl FnOnce(), command: impl FnOnce(PathBuf) -> Command) {
    if variable(MARK).is_some() {
        return body();
    }
    let Some(library) = library() else { return };
    let (_, name) = name.split_once("::").expect("after the crate");
    let output = command(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture", "--test-threads", "1", "--include-ignored"])
        .env("LD_LIBRARY_PATH", library)
        .env(MARK, "1")
        .output()
        .expect("a child process");
    let [out, err] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{name}: {out}\n{err}");
    print!("{out}");
}

#[expect(clippy::disallowed_methods, reason = "asks what the test before it or its caller has set")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Compiles the fake library, and returns its folder. Returns nothing where there is no compiler.
///
/// # Panics
/// As [`needed::skipped`] without a compiler. The compiler refuses the files.
#[must_use]
pub fn library() -> Option<PathBuf> {
    let built = std::env::current_exe().expect("this program");
    // The folder is beside `deps`, in which this program lies.
    let folder = built.ancestors().nth(3).expect("below the target folder").join(NAME);
    fs::create_dir_all(&folder).expect("a writable target folder");
    // Concurrent tests compile a file each, and put it in place by renaming it.
    let made = folder.join(format!("{}-{:?}", process::id(), std::thread::current().id()));
    let files = ["verbs.c", "wire.c", "windows.c", "controls.c"].map(source);
    let shared = ["-fPIC", "-shared", "-fvisibility=hidden", "-lpthread"];
    if !compiles(Command::new("cc").args(files).args(shared).arg("-o").arg(&made)) {
        let _ = needed::skipped(NAME, "no cc");
        return None;
    }
    fs::rename(&made, folder.join("libibverbs.so.1")).expect("a writable folder");
    Some(folder)
}

/// Compiles the fake library's own checks of verbs that the transport does not use. Returns the
/// program, or nothing where there is no compiler.
///
/// # Panics
/// As [`library`].
#[must_use]
pub fn own_checks() -> Option<PathBuf> {
    let library = library()?;
    let program = library.join(format!("check-{}", process::id()));
    let linked = library.join("libibverbs.so.1");
    let mut compiler = Command::new("cc");
    compiles(compiler.arg(source("check.c")).arg(linked).arg("-o").arg(&program)).then_some(program)
}

/// The path of a file of the fake library.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fake-verbs").join(name)
}

/// Runs a compiler, and returns whether there is one.
fn compiles(compiler: &mut Command) -> bool {
    let compiler = compiler.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    let Ok(compiled) = compiler.output() else { return false };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    true
}
