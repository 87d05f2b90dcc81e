//! Jobs for the tests: identities that meet on loopback, and ranks in threads and in processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{
    Control, FailureCause, Identity, JoinError, Launcher, Options, Rendezvous, Secret, SecretSource,
};
use ringfold_harness::free_port;
use ringfold_types::{Chain, Rank};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

/// Long enough for a machine under load. Nothing waits for it unless a test fails.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How long a process is stopped: far longer than a busy machine delays it.
pub(crate) const STOPPED: Duration = Duration::from_secs(3);

pub(crate) type Joined = Result<(Control, Vec<Vec<u8>>), JoinError>;

/// A job whose ranks meet on a port of the loopback address.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) size: usize,
    pub(crate) ports: Vec<u16>,
    pub(crate) secret: Secret,
    pub(crate) options: Options,
}

impl Job {
    pub(crate) fn new(size: usize) -> Self {
        let options = Options { timeout: TIME_LIMIT, ..Options::default() };
        Self { size, ports: vec![free_port()], secret: Secret::generate().unwrap(), options }
    }

    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    pub(crate) fn identity(&self, rank: u32) -> Identity {
        Identity {
            rank: Rank(rank),
            size: self.size,
            job: "test".into(),
            rendezvous: Rendezvous::Ports {
                hosts: vec!["127.0.0.1".into()],
                named_by: "the test",
                ports: self.ports.clone(),
            },
            launcher: Launcher::Torchrun,
            secret_source: SecretSource::None,
        }
    }

    pub(crate) fn join(&self, rank: u32) -> Joined {
        let peer_info = format!("peer information {rank}").into_bytes();
        Control::join(self.identity(rank), self.secret.clone(), peer_info, self.options.clone())
    }

    pub(crate) fn spawn(&self, rank: u32) -> thread::JoinHandle<Joined> {
        let job = self.clone();
        thread::spawn(move || job.join(rank))
    }

    /// The controls of these ranks, after all ranks of the job have joined.
    pub(crate) fn joined(&self, ranks: &[u32]) -> Vec<Control> {
        let threads: Vec<_> = ranks.iter().map(|rank| self.spawn(*rank)).collect();
        threads.into_iter().map(|t| t.join().unwrap().unwrap().0).collect()
    }

    /// Starts the rank as a process that joins and then waits for a failure cause.
    pub(crate) fn process(&self, rank: u32) -> Process {
        self.process_that(rank, "waits")
    }

    /// Like `process`, with a soft and a hard limit of open files.
    pub(crate) fn process_with(&self, rank: u32, soft: &str, hard: &str) -> Process {
        self.process_that(rank, &format!("waits {soft} {hard}"))
    }

    /// Starts the rank as a process that joins, and catches up after it has been stopped.
    pub(crate) fn stopped_process(&self, rank: u32) -> Process {
        self.process_that(rank, "catches-up")
    }

    /// Starts the rank as a process that joins, exchanges so many bytes, and then waits for a
    /// failure cause.
    pub(crate) fn exchanging_process(&self, rank: u32, bytes: usize) -> Process {
        self.process_that(rank, &format!("exchanges {bytes}"))
    }

    /// Starts the rank as a process that prints the CPU time of joining, exchanges and marks.
    pub(crate) fn counting_process(&self, rank: u32) -> Process {
        self.process_that(rank, "counts")
    }

    /// Starts the rank as a process that joins, and ends as soon as it has the failure cause.
    pub(crate) fn process_that_vanishes(&self, rank: u32) -> Process {
        self.process_that(rank, "vanishes")
    }

    fn process_that(&self, rank: u32, what: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "world::as_a_process", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let hex = self.secret.to_hex();
        let line = format!("{rank} {} {} {} {what}\n", self.size, self.ports[0], hex.as_str());
        child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Process { child, output }
    }
}

/// A child that does not outlive the test.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops the process and waits until all its threads have stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        let tasks = format!("/proc/{}/task", self.child.id());
        while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The failure cause that the process printed.
    pub(crate) fn failure_cause(&mut self) -> String {
        self.line("failure cause: ")
    }

    /// Waits until the process has printed that it polls the clock.
    pub(crate) fn wait_until_it_spins(&mut self) {
        self.line("spins");
    }

    /// The text after `words` on the first line that has them.
    pub(crate) fn line(&mut self, words: &str) -> String {
        let mut lines = self.output.by_ref().lines().map_while(Result::ok);
        lines.find_map(|line| Some(line.split_once(words)?.1.to_owned())).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The program of `Job::process`, not a test.
#[test]
#[ignore = "a rank of other tests, started by them"]
fn as_a_process() {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        return; // all ignored tests run
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut job = Job::new(words[1].parse().unwrap());
    job.ports = vec![words[2].parse().unwrap()];
    job.secret = Secret::parse(words[3].as_bytes()).unwrap();
    if let [_, _, _, _, _, soft, hard] = words[..] {
        let [current, maximum] = [soft, hard].map(|limit| Some(limit.parse().unwrap()));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }
    if words[4] == "counts" {
        return crate::prices::count(&job, words[0].parse().unwrap());
    }
    let (control, _) = match job.join(words[0].parse().unwrap()) {
        Ok(joined) => joined,
        Err(e) => return println!("failure cause: {}", Chain(&e)),
    };
    if words[4] == "catches-up" {
        return catch_up_after_a_stop(&control);
    }
    if let [_, _, _, _, "exchanges", bytes] = words[..] {
        let all = control.exchange(vec![7; bytes.parse().unwrap()], TIME_LIMIT).unwrap();
        println!("exchanged {}", all.len());
    }
    let cause = failure_cause(&control);
    if words[4] == "vanishes" {
        rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
    }
    println!("failure cause: {cause}");
    control.leave().unwrap_err();
}

/// Prints the failure cause that came while this process was stopped.
#[expect(clippy::print_stdout, reason = "standard output is how it reports")]
fn catch_up_after_a_stop(control: &Control) {
    let began = Instant::now();
    let (mut now, mut last) = (began, began);
    println!("spins");
    while now - last < STOPPED / 2 {
        assert!(now - began < TIME_LIMIT, "no signal stops this process");
        (last, now) = (now, Instant::now());
    }
    while !control.catch_up() {}
    println!(
        "failure cause: {}",
        control.failure_cause().map_or_else(|| "none".into(), |v| v.to_string())
    );
}

/// Waits for the failure cause as an idle thread does.
pub(crate) fn failure_cause(control: &Control) -> Arc<FailureCause> {
    let mut fds = [PollFd::from_borrowed_fd(control.wake_fd(), PollFlags::IN)];
    let limit = Timespec { tv_sec: TIME_LIMIT.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "no failure cause in {TIME_LIMIT:?}");
    control.failure_cause().unwrap()
}

/// The one failure cause that all of them get.
pub(crate) fn common_cause(controls: &[Control]) -> Arc<FailureCause> {
    let first = failure_cause(&controls[0]);
    for control in controls {
        assert_eq!(failure_cause(control), first, "rank {}", control.rank());
    }
    first
}

/// Leaves all ranks at the same time, and returns the result of each.
pub(crate) fn leave(controls: Vec<Control>) -> Vec<Result<(), Arc<FailureCause>>> {
    let threads: Vec<_> = controls.into_iter().map(|c| thread::spawn(move || c.leave())).collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}
