//! Ranks as processes without a launcher, which would end them all.

use std::cell::Cell;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Job, Outcome, program};

/// The deadline of each step, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The processes of one job, by rank. Dropping them kills them.
#[derive(Debug)]
pub struct Ranks(pub Vec<Process>);

/// One rank's process.
#[derive(Debug)]
pub struct Process {
    job: Job,
    /// Lines of its output that have been read.
    read: Cell<usize>,
}

impl Ranks {
    /// Starts `size` ranks with torch's variables, and with what `prepare` adds to the command of
    /// each.
    ///
    /// # Panics
    /// If they cannot be started.
    #[must_use]
    pub fn start(size: usize, prepare: impl Fn(usize, &mut Command)) -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
        let port = free.expect("a free port").port();
        let start = |rank: usize| {
            let mut command = Command::new(program::own("rank"));
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("RINGFOLD_SECRET", &"5ec2e7".repeat(11)[..64]);
            prepare(rank, &mut command);
            Process { job: Job::start(&mut command), read: Cell::new(0) }
        };
        Self((0..size).map(start).collect())
    }

    /// Waits until every rank has printed `word`.
    pub fn wait_for(&self, word: &str) {
        self.lines(word);
    }

    /// Waits until every rank has printed a line that begins with `word`, and returns the rests.
    pub fn lines(&self, word: &str) -> Vec<String> {
        self.0.iter().map(|rank| rank.line(word)).collect()
    }

    /// Returns the failure causes of all ranks but `except`, and the time of the last.
    #[must_use]
    pub fn causes(&self, except: usize) -> (Vec<String>, Instant) {
        let others = self.0.iter().enumerate().filter(|(rank, _)| *rank != except);
        let causes = others.map(|(_, rank)| rank.line("cause ")).collect();
        (causes, Instant::now())
    }

    /// Waits for the end of all processes.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    #[must_use]
    pub fn finish(self, limit: Duration) -> Vec<Outcome> {
        let until = Instant::now() + limit;
        let left = || until.saturating_duration_since(Instant::now());
        self.0.into_iter().map(|rank| rank.job.finish(left())).collect()
    }
}

impl Process {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.job.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process has been waited for.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("a child that nobody has waited for");
    }

    /// Returns whether the process has printed no further line.
    #[must_use]
    pub fn has_no_output(&self) -> bool {
        self.job.line_after(self.read.get(), Duration::ZERO, |_| true).is_none()
    }

    /// Waits for a further line that begins with `word`, and returns its rest.
    pub fn line(&self, word: &str) -> String {
        self.line_within(word, DEADLINE)
    }

    /// Waits for a further line that begins with `word` for at most `limit`, and returns its rest.
    ///
    /// # Panics
    /// If there is none. The message has the output.
    pub fn line_within(&self, word: &str, limit: Duration) -> String {
        let is_it = |line: &str| line.starts_with(word);
        let found = self.job.line_after(self.read.get(), limit, is_it);
        let (at, line) = found.unwrap_or_else(|| {
            panic!("process {} does not print {word:?}\n{}", self.id(), self.job.printed())
        });
        self.read.set(at + 1);
        line[word.len()..].to_owned()
    }
}
