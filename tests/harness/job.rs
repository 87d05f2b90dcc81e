//! A running program with its output and a deadline.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Time between two checks for the end of a program.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The deadline of each step, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A program with its child processes, in a process group of their own. Dropping it kills them.
#[derive(Debug)]
pub struct Job {
    child: Child,
    started: Instant,
    stdout: Arc<Printed>,
    stderr: Arc<Printed>,
    /// The number of lines of standard output that have been read.
    read: AtomicUsize,
    reaped: bool,
}

/// The result of a program.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
    /// The run time.
    pub took: Duration,
}

/// The output so far.
#[derive(Debug, Default)]
struct Printed {
    /// The text, and whether it is complete.
    state: Mutex<(String, bool)>,
    changed: Condvar,
}

/// Sends a signal to a process.
///
/// # Panics
/// If there is no such process.
pub fn kill(pid: u32, signal: Signal) {
    let process = Pid::from_raw(pid.cast_signed()).expect("a pid");
    kill_process(process, signal).unwrap_or_else(|why| panic!("process {pid}: {why}"));
}

impl Outcome {
    /// Runs `command` to its end, as [`Job::start`] and [`Job::finish`] do within a minute.
    ///
    /// # Panics
    /// As these.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        Job::start(command).outcome()
    }

    /// The exit status, or -N if signal N ended the program.
    #[must_use]
    pub fn code(&self) -> i32 {
        code(self.status)
    }

    /// The standard output of a program that succeeds.
    ///
    /// # Panics
    /// If it has failed.
    #[must_use]
    pub fn printed(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }

    /// The last line of standard error.
    #[must_use]
    pub fn last_line(&self) -> &str {
        self.stderr.trim_end().lines().last().unwrap_or_default()
    }

    /// The lines of standard output, sorted.
    #[must_use]
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

fn code(status: ExitStatus) -> i32 {
    let signal = || status.signal().map(|signal| -signal);
    status.code().or_else(signal).expect("the program has ended")
}

impl Job {
    /// Starts `command` with an empty standard input.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let spawned = command.process_group(0).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Self {
            stdout: collect(stdout.expect("the command has a pipe")),
            stderr: collect(stderr.expect("the command has a pipe")),
            child,
            started,
            read: AtomicUsize::new(0),
            reaped: false,
        }
    }

    /// Waits for a line of standard output for which `is_it` holds, and returns it.
    ///
    /// # Panics
    /// If there is none within `limit`. The message has the output.
    pub fn wait_for_line(&self, limit: Duration, is_it: impl Fn(&str) -> bool) -> String {
        self.wait_for(&self.stdout, limit, is_it)
    }

    /// Waits for a line of standard error for which `is_it` holds, and returns it.
    ///
    /// # Panics
    /// As [`wait_for_line`](Self::wait_for_line).
    pub fn wait_for_log(&self, limit: Duration, is_it: impl Fn(&str) -> bool) -> String {
        self.wait_for(&self.stderr, limit, is_it)
    }

    fn wait_for(&self, printed: &Printed, limit: Duration, is_it: impl Fn(&str) -> bool) -> String {
        let find = |text: &str| text.lines().find(|line| is_it(line)).map(str::to_owned);
        let line = printed.wait(Instant::now() + limit, |text, _| find(text));
        line.unwrap_or_else(|| panic!("no such line within {limit:?}\n{}", self.printed()))
    }

    /// Waits for a further line of standard output that begins with `word`, and returns its rest.
    ///
    /// # Panics
    /// If there is none within a minute. The message has the output.
    pub fn line(&self, word: &str) -> String {
        self.line_within(word, DEADLINE)
    }

    /// Waits for `count` further lines of standard output.
    ///
    /// # Panics
    /// As [`line`](Self::line).
    pub fn lines(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line("")).collect()
    }

    /// Waits until there are `count` lines of standard error, and returns them.
    ///
    /// # Panics
    /// As [`line`](Self::line).
    pub fn error_lines(&self, count: usize) -> Vec<String> {
        let first = |text: &str| text.lines().take(count).map(str::to_owned).collect::<Vec<_>>();
        let enough = |text: &str, _| Some(first(text)).filter(|lines| lines.len() == count);
        let lines = self.stderr.wait(Instant::now() + DEADLINE, enough);
        lines.unwrap_or_else(|| panic!("no {count} lines of standard error\n{}", self.printed()))
    }

    /// Waits for a further line as [`line`](Self::line) does, for at most `limit`.
    ///
    /// # Panics
    /// If there is none. The message has the output.
    pub fn line_within(&self, word: &str, limit: Duration) -> String {
        self.next_line(limit, word).unwrap_or_else(|| {
            panic!("process {} does not print {word:?}\n{}", self.id(), self.printed())
        })
    }

    /// Returns whether the program has printed no further line.
    #[must_use]
    pub fn has_no_output(&self) -> bool {
        let read = self.read.load(Ordering::Relaxed);
        let is_silent = self.next_line(Duration::ZERO, "").is_none();
        self.read.store(read, Ordering::Relaxed);
        is_silent
    }

    fn next_line(&self, limit: Duration, word: &str) -> Option<String> {
        self.stdout.wait(Instant::now() + limit, |text, _| {
            let mut lines = text.lines().enumerate().skip(self.read.load(Ordering::Relaxed));
            let (at, rest) = lines.find_map(|(at, line)| Some((at, line.strip_prefix(word)?)))?;
            self.read.store(at + 1, Ordering::Relaxed);
            Some(rest.to_owned())
        })
    }

    /// Sends a signal to the program.
    ///
    /// # Panics
    /// If it has been waited for.
    pub fn signal(&self, signal: Signal) {
        kill(self.id(), signal);
    }

    /// The process id of the program.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the program, and of all processes that hold its output.
    ///
    /// # Panics
    /// If that takes longer than `limit`. The message has the output.
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        let status = self.ended(limit);
        let took = self.started.elapsed();
        let all = |printed: &Printed| {
            printed.wait(deadline, |text, ended| ended.then(|| text.to_owned()))
        };
        let (Some(stdout), Some(stderr)) = (all(&self.stdout), all(&self.stderr)) else {
            panic!(
                "the program ended with {status}, but left processes behind\n{}",
                self.printed()
            );
        };
        self.reaped = true;
        Outcome { status, stdout, stderr, took }
    }

    /// Waits for the end as [`finish`](Self::finish) does, for at most a minute.
    ///
    /// # Panics
    /// As [`finish`](Self::finish).
    #[must_use]
    pub fn outcome(self) -> Outcome {
        self.finish(DEADLINE)
    }

    /// Waits for the end of the program alone, and returns its status as [`Outcome::code`] does.
    ///
    /// # Panics
    /// If that takes longer than a minute. The message has the output.
    pub fn wait(&mut self) -> i32 {
        code(self.ended(DEADLINE))
    }

    fn ended(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "still running after {limit:?}\n{}", self.printed());
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn printed(&self) -> String {
        let text =
            |printed: &Printed| printed.wait(Instant::now(), |text, _| Some(text.to_owned()));
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        format!("{}\n{}", stdout.unwrap_or_default(), stderr.unwrap_or_default())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // The group's id stays in use until our child is reaped and all other members have ended.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let killed = group.map(|group| kill_process_group(group, Signal::KILL));
        drop((killed, self.child.wait()));
    }
}

impl Printed {
    /// Calls `seen` with the text, and whether it is complete, until it returns a value or the
    /// deadline passes.
    fn wait<T>(&self, deadline: Instant, seen: impl Fn(&str, bool) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let found = seen(&state.0, state.1);
            let left = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || left.is_zero() {
                return found;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn update(&self, change: impl FnOnce(&mut (String, bool))) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Collects the output of `pipe`, whole lines at a time.
fn collect(pipe: impl Read + Send + 'static) -> Arc<Printed> {
    let printed = Arc::new(Printed::default());
    let output = Arc::clone(&printed);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            output.update(|state| state.0.push_str(&String::from_utf8_lossy(&line)));
            line.clear();
        }
        output.update(|state| state.1 = true);
    });
    printed
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Job {
        Job::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn a_job_returns_its_output_and_status() {
        let job = shell("echo one; echo two >&2; exit 3");
        assert_eq!(job.wait_for_line(SOON, |line| line.starts_with('o')), "one");
        let outcome = job.finish(SOON);
        assert_eq!(outcome.status.code(), Some(3));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("one\n", "two\n"));
    }

    #[test]
    fn a_process_that_outlives_its_parent_is_reported_and_killed() {
        let job = shell("sleep 1000 & echo $!");
        let pid = job.wait_for_line(SOON, |line| !line.is_empty());
        let process = std::path::PathBuf::from(format!("/proc/{pid}/stat"));
        assert!(process.exists());
        let finished = catch_unwind(AssertUnwindSafe(|| job.finish(Duration::from_millis(300))));
        assert!(finished.is_err());
        let deadline = Instant::now() + SOON;
        let lives = || std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z"));
        while lives() {
            assert!(Instant::now() < deadline, "process {pid} lives on");
            thread::sleep(POLL_INTERVAL);
        }
    }
}
