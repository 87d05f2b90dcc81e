//! `ringrun` under test: started with a deadline, with its output collected and its leftovers
//! found.
#![allow(dead_code, reason = "every suite uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// No test here takes this long unless something hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The output of `ringrun`, and its status.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Finished {
    /// The last line of standard error.
    pub(crate) fn last_line(&self) -> &str {
        self.err.trim_end().lines().last().unwrap_or_default()
    }

    /// Lines of standard output, sorted.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines = self.out.lines().collect::<Vec<_>>();
        lines.sort_unstable();
        lines
    }
}

/// `ringrun` with these arguments and no input. The test runner may ignore signals (`nohup`, or a
/// shell's `&`), which a launcher respects. So this restores the default signals.
pub(crate) fn ringrun(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM,HUP").arg(env!("CARGO_BIN_EXE_ringrun"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `ringrun` to the end.
pub(crate) fn run(args: &[&str]) -> Finished {
    Running::start(&mut ringrun(args)).finish()
}

/// A running `ringrun`.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    seen: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().map(read_out).unwrap();
        let err = child.stderr.take().map(read_err).unwrap();
        Self { child, out, err, seen: String::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for `count` more lines on standard output.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count {
            let line = self.out.recv_timeout(DEADLINE).expect("ringrun prints another line");
            self.seen.push_str(&line);
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    /// Waits for `count` more lines on standard error, which `finish` will lack.
    pub(crate) fn error_lines(&mut self, count: usize) -> Vec<String> {
        let next = || self.err.recv_timeout(DEADLINE).expect("ringrun prints another error line");
        (0..count).map(|_| next().trim_end().to_owned()).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Waits for the end and collects everything.
    pub(crate) fn finish(mut self) -> Finished {
        let code = self.wait();
        let mut out = std::mem::take(&mut self.seen);
        out.extend(self.out.iter());
        Finished { code, out, err: self.err.iter().collect() }
    }

    /// Waits for the end: the exit status, or -N if signal N ended it.
    pub(crate) fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap();
            }
            assert!(Instant::now() < until, "ringrun does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends its ranks when it dies.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read_out(stream: ChildStdout) -> Receiver<String> {
    read_lines(stream)
}

fn read_err(stream: ChildStderr) -> Receiver<String> {
    read_lines(stream)
}

fn read_lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (lines, received) = channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
            if lines.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    received
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
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

/// An empty folder that every user may enter, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringrun-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
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
