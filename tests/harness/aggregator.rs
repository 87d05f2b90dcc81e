//! A running `ringfold aggregate`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::program;

/// A home directory, whose site secret aggregators and ranks share. It ends with the test.
#[derive(Debug)]
pub struct Home(PathBuf);

/// A running aggregator, which ends with the test.
#[derive(Debug)]
pub struct Aggregator {
    process: Child,
    /// The address of its control port.
    pub at: String,
}

impl Home {
    /// Makes an empty one.
    ///
    /// # Panics
    /// If there is no room.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringfold-home-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Starts an aggregator at a free port, or at that of `--listen`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn aggregator(&self, arguments: &[&str]) -> Aggregator {
        let mut command = self.command();
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(["--threads", "1"]).args(arguments);
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = spawned.expect("an aggregator starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("the command has a pipe");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let at = line.strip_prefix("aggregator at ").and_then(|rest| rest.split_once(": "));
        let at = at.unwrap_or_else(|| panic!("{line:?}")).0.to_owned();
        Aggregator { process, at }
    }

    /// The chunks that the groups of the aggregator at `at` have combined: one number for each
    /// group.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn chunks(&self, at: &str) -> Vec<u64> {
        let output = self.command().args(["--listen", at, "--stats"]).output();
        let output = output.expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        let chunks = |line: &str| line.split_whitespace().nth(6)?.parse().ok();
        text.lines().skip(2).filter_map(chunks).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program::binary("ringfold"));
        command.arg("aggregate").env("HOME", &self.0).env_remove("RINGFOLD_SITE_SECRET_FILE");
        command
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

impl Aggregator {
    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it runs");
    }

    /// Kills it, and frees its port.
    ///
    /// # Panics
    /// If it is not this process's child.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
