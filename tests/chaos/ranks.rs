//! Many ranks as processes of one job, with a home and a folder for temporary files of their own.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use rustix::process::{Pid, Signal, kill_process};

/// The processes of one job, by rank. They end with it.
pub(crate) struct Crowd {
    ranks: Vec<Process>,
    home: Home,
}

/// A folder that goes away with its owner.
pub(crate) struct Home(PathBuf);

struct Process {
    child: Child,
    /// The lines that it prints, each with its time.
    lines: Receiver<(String, Instant)>,
}

impl Crowd {
    /// Starts `size` ranks that do `task` over `transport`.
    pub(crate) fn start(
        size: usize,
        transport: &str,
        task: &[&str],
        settings: &[(&str, String)],
    ) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let home = Home::new();
        let start = |rank: usize| {
            let mut child = Command::new(env!("CARGO_BIN_EXE_rank"))
                .args(task)
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .env("RINGFOLD_SECRET", &"5ec2e7".repeat(11)[..64])
                .env("RINGFOLD_TRANSPORT", transport)
                .env("HOME", home.path())
                .env("TMPDIR", home.path())
                .envs(settings.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (send, lines) = channel();
            let output = BufReader::new(child.stdout.take().unwrap());
            thread::spawn(move || {
                let mut lines = output.lines().map_while(Result::ok);
                lines.try_for_each(|line| send.send((line, Instant::now()))).ok();
            });
            Process { child, lines }
        };
        Self { ranks: (0..size).map(start).collect(), home }
    }

    /// Waits until every rank has said `line`.
    pub(crate) fn wait_for_all(&self, line: &str, limit: Duration) {
        let until = Instant::now() + limit;
        for rank in 0..self.ranks.len() {
            self.line(rank, line, until);
        }
    }

    pub(crate) fn signal(&self, rank: usize, signal: Signal) {
        let pid = Pid::from_raw(self.ranks[rank].child.id().cast_signed()).unwrap();
        // A rank that was killed is our child until we wait for it, so its number is its own.
        kill_process(pid, signal).unwrap();
    }

    /// The causes that all ranks but `except` state, and when each did.
    pub(crate) fn causes(&self, except: usize, limit: Duration) -> Vec<(String, Instant)> {
        let until = Instant::now() + limit;
        let others = (0..self.ranks.len()).filter(|rank| *rank != except);
        others.map(|rank| self.line(rank, "verdict ", until)).collect()
    }

    /// Waits for the end of all processes.
    pub(crate) fn end(mut self, limit: Duration) -> Home {
        let until = Instant::now() + limit;
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            while process.child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < until, "rank {rank} is still there after {limit:?}");
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.home
    }

    /// All that each rank says until it ends.
    pub(crate) fn finish(self, limit: Duration) -> Vec<Vec<String>> {
        let until = Instant::now() + limit;
        let all = |process: &Process| {
            let mut said = Vec::new();
            loop {
                let left = until.saturating_duration_since(Instant::now());
                match process.lines.recv_timeout(left) {
                    Ok((line, _)) => said.push(line),
                    Err(RecvTimeoutError::Disconnected) => return said,
                    Err(RecvTimeoutError::Timeout) => panic!("no end within {limit:?}: {said:?}"),
                }
            }
        };
        self.ranks.iter().map(all).collect()
    }

    /// What follows `word` on the next line of `rank`, which begins with it, and when it was said.
    fn line(&self, rank: usize, word: &str, until: Instant) -> (String, Instant) {
        let left = until.saturating_duration_since(Instant::now());
        loop {
            let (line, when) = match self.ranks[rank].lines.recv_timeout(left) {
                Ok(said) => said,
                Err(why) => panic!("rank {rank} does not say {word:?}: {why}"),
            };
            if let Some(rest) = line.strip_prefix(word) {
                return (rest.to_owned(), when);
            }
            assert!(line.starts_with("failed "), "rank {rank} says {line:?}");
        }
    }
}

impl Home {
    fn new() -> Self {
        let name = format!("ringfold-chaos-{}-{:x}", process::id(), crate::random::fresh());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
