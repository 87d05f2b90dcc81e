//! Many ranks as processes of one job, with their own home and folder for temporary files.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use rustix::process::{Pid, Signal, kill_process};

/// The processes of one job, by rank. Dropping it kills them.
pub(crate) struct Ranks {
    ranks: Vec<Process>,
    home: Home,
}

/// A temporary folder, which dropping it removes.
pub(crate) struct Home(PathBuf);

struct Process {
    child: Child,
    /// The lines of its output, each with its time.
    lines: Receiver<(String, Instant)>,
}

impl Ranks {
    /// Starts `size` ranks that run `task` over `transport`.
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

    /// Waits until every rank has printed `line`.
    pub(crate) fn wait_for_all(&self, line: &str, limit: Duration) {
        let until = Instant::now() + limit;
        for rank in 0..self.ranks.len() {
            self.line(rank, line, until);
        }
    }

    pub(crate) fn signal(&self, rank: usize, signal: Signal) {
        let pid = Pid::from_raw(self.ranks[rank].child.id().cast_signed()).unwrap();
        // A killed child keeps its pid until we wait for it.
        kill_process(pid, signal).unwrap();
    }

    /// Returns the failure causes that all ranks but `except` print, each with its time.
    pub(crate) fn causes(&self, except: usize, limit: Duration) -> Vec<(String, Instant)> {
        let until = Instant::now() + limit;
        let others = (0..self.ranks.len()).filter(|rank| *rank != except);
        others.map(|rank| self.line(rank, "cause ", until)).collect()
    }

    /// Waits for the end of all processes, and returns their home.
    pub(crate) fn end(mut self, limit: Duration) -> Home {
        let until = Instant::now() + limit;
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            while process.child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < until, "rank {rank} still runs after {limit:?}");
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.home
    }

    /// Returns the output of each rank until its end.
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

    /// Waits for a line of `rank` that begins with `word`, and returns its rest and its time.
    fn line(&self, rank: usize, word: &str, until: Instant) -> (String, Instant) {
        let left = until.saturating_duration_since(Instant::now());
        loop {
            let (line, when) = match self.ranks[rank].lines.recv_timeout(left) {
                Ok(said) => said,
                Err(why) => panic!("rank {rank} does not print {word:?}: {why}"),
            };
            if let Some(rest) = line.strip_prefix(word) {
                return (rest.to_owned(), when);
            }
            assert!(line.starts_with("failed "), "rank {rank} prints {line:?}");
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
