//! `ringrun` under test, and its leftovers.
#![allow(dead_code, reason = "every suite uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringfold_harness::Outcome;

/// `ringrun` with these arguments and no input. The test runner may ignore signals (`nohup`, or a
/// shell's `&`), which a launcher respects. So this restores the default signals.
pub(crate) fn ringrun(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM,HUP").arg(env!("CARGO_BIN_EXE_ringrun"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `ringrun` to the end.
pub(crate) fn run(args: &[&str]) -> Outcome {
    Outcome::of(&mut ringrun(args))
}

/// A number of seconds so odd that only this test's processes can have it in their arguments.
pub(crate) fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("86{count:03}.{:09}", std::process::id())
}

/// Living processes with `mark` in their arguments.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| arguments(*pid).contains(mark)).collect()
}

fn arguments(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until no process has `mark` in its arguments.
pub(crate) fn assert_gone(mark: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while let left @ [_, ..] = &marked(mark)[..] {
        let left = left.iter().map(|pid| (*pid, arguments(*pid))).collect::<Vec<_>>();
        assert!(Instant::now() < until, "left behind: {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until none of these processes lives.
pub(crate) fn assert_ended(pids: &[u32]) {
    let until = Instant::now() + Duration::from_secs(20);
    let lives = |pid: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie's parent is not ours to wake.
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    while let Some(pid) = pids.iter().find(lives) {
        assert!(Instant::now() < until, "still lives: {pid} {}", arguments(*pid));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
