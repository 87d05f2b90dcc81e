//! Ranks as processes, which a test can kill and stop, and whose output it reads.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_tests::rdma;
use rustix::process::{Pid, Signal, kill_process};

/// Far beyond the promised bound of 1 s after a death, for loaded machines. The test prints the
/// actual time.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Returns the timeout of a call. The first RDMA call sets up devices, which takes seconds on an
/// emulated processor.
pub(crate) fn timeout(transport: &str) -> Duration {
    Duration::from_secs(if transport == "rdma" { 5 } else { 2 })
}

/// The processes of one job. Dropping it kills them.
pub(crate) struct Job {
    pub(crate) ranks: Vec<Process>,
}

/// One rank's process.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

/// The deadline of each step, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

impl Job {
    /// Starts `size` ranks that run `task` over `transport` with `settings`. Over RDMA the ranks
    /// use the devices of the hosts in turn.
    pub(crate) fn start(
        size: usize,
        transport: &str,
        task: &[&str],
        settings: &[(&str, &str)],
    ) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let hosts = if transport == "rdma" { rdma::hosts() } else { vec![String::new()] };
        let start = |rank: usize| {
            let mut child = Command::new(env!("CARGO_BIN_EXE_rank"))
                .args(task)
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .env("RINGFOLD_SECRET", &"5ec2e7".repeat(11)[..64])
                .env("RINGFOLD_TRANSPORT", transport)
                .env("RINGFOLD_IB_HCA", &hosts[rank % hosts.len()])
                .envs(settings.iter().copied())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (send, lines) = channel();
            let output = BufReader::new(child.stdout.take().unwrap());
            thread::spawn(move || {
                output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)).ok();
            });
            Process { child, lines }
        };
        Self { ranks: (0..size).map(start).collect() }
    }

    /// Waits until every rank has printed `word`.
    pub(crate) fn wait_for(&self, word: &str) {
        self.ranks.iter().for_each(|rank| drop(rank.line(word)));
    }

    /// Returns the failure causes of all ranks but `except`, and the time of the last.
    pub(crate) fn causes(&self, except: usize) -> (Vec<String>, Instant) {
        let others = self.ranks.iter().enumerate().filter(|(rank, _)| *rank != except);
        let causes = others.map(|(_, rank)| rank.line("cause ")).collect();
        (causes, Instant::now())
    }
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Returns whether the process has printed no further line.
    pub(crate) fn has_no_output(&self) -> bool {
        self.lines.try_recv().is_err()
    }

    /// Waits for a line that begins with `word`, and returns its rest.
    pub(crate) fn line(&self, word: &str) -> String {
        self.line_within(word, DEADLINE)
    }

    /// Waits for a line that begins with `word` for at most `limit`, and returns its rest.
    pub(crate) fn line_within(&self, word: &str, limit: Duration) -> String {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line =
                line.unwrap_or_else(|e| panic!("process {} never prints {word}: {e}", self.id()));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
