//! Calls over aggregators that run as processes, which tests kill and stop at random moments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use ringfold_tests::{Job, Outcome, program};
use rustix::process::{Pid, Signal, kill_process};

/// The deadline of a job, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Hosts for which ranks of one machine stand.
const HOSTS: usize = 3;

/// A running `ringfold aggregate`, which ends with the test.
struct Aggregator {
    process: Child,
    at: String,
    home: PathBuf,
}

impl Aggregator {
    fn start(arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringfold-in-network-{}-{number}", std::process::id());
        let home = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&home).unwrap();
        let mut command = Command::new(program::binary("ringfold"));
        command.args(["aggregate", "--listen", "127.0.0.1:0", "--threads", "1"]).args(arguments);
        command.env("HOME", &home).env_remove("RINGFOLD_SITE_SECRET_FILE");
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.strip_prefix("aggregator at ").and_then(|rest| rest.split_once(": "));
        let at = at.unwrap_or_else(|| panic!("{line:?}")).0.to_owned();
        Self { process, at, home }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ranks, one on each host, that use this aggregator.
    fn ranks(&self, task: &[&str]) -> Command {
        let mut command = ringrun(task);
        command.env("HOME", &self.home).env("RINGFOLD_AGGREGATORS", &self.at);
        command.env("RINGFOLD_INNETWORK", "require");
        command
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_dir_all(&self.home).ok();
    }
}

fn ringrun(task: &[&str]) -> Command {
    let mut command = Command::new(program::binary("ringrun"));
    let script = "RINGFOLD_HOSTID=host-$RINGFOLD_RANK exec \"$@\"";
    command.args(["-n", &HOSTS.to_string(), "--timeout", "60", "sh", "-c", script, "sh"]);
    command.arg(program::binary("rank")).args(task);
    command.env("RINGFOLD_TRANSPORT", "tcp").env("RINGFOLD_TIMEOUT", "30");
    command.env_remove("RINGFOLD_SITE_SECRET_FILE");
    let algorithms = "allreduce:in_network;reduce:in_network;barrier:in_network";
    command.env("RINGFOLD_ALGO", algorithms);
    command
}

/// The bits of all rounds, which must be the same in each, by rank.
fn bits(outcome: &Outcome, rounds: usize) -> BTreeMap<String, String> {
    assert!(outcome.status.success(), "{outcome:?}");
    let mut bits = BTreeMap::new();
    let mut count = 0;
    for line in outcome.stdout.lines() {
        let Some(line) = line.strip_prefix("bits ") else { continue };
        let (rank, digest) = line.split_once(' ').unwrap();
        let first = bits.entry(rank.to_owned()).or_insert_with(|| digest.to_owned());
        assert_eq!(first, digest, "rank {rank} has other bits: {outcome:?}");
        count += 1;
    }
    assert_eq!(count, HOSTS * rounds, "{outcome:?}");
    bits
}

/// Interrupts the aggregator some time after the first round.
fn interrupted(signal: Signal, after: Duration) {
    const ROUNDS: usize = 6;
    let aggregator = Aggregator::start(&[]);
    let mut command = aggregator.ranks(&["bits", &ROUNDS.to_string()]);
    command.env("RINGFOLD_DEBUG", "WARN");
    let job = Job::start(&mut command);
    job.wait_for_line(DEADLINE, |line| line.starts_with("bits "));
    thread::sleep(after);
    aggregator.signal(signal);
    let outcome = job.finish(DEADLINE);
    bits(&outcome, ROUNDS);
    assert!(outcome.stderr.contains("is given up"), "it was not in use: {outcome:?}");
}

/// A moment within the rounds, other in each run.
fn moment() -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Duration::from_millis(u64::from(now.subsec_micros()) % 1000)
}

#[test]
fn all_types_and_operations_have_the_bits_of_the_ranks_own_steps() {
    let aggregator = Aggregator::start(&[]);
    let with = Job::start(&mut aggregator.ranks(&["bits", "1"])).finish(DEADLINE);
    let with = bits(&with, 1);
    // It is killed before the calls, after the ranks have joined, so all chunks go by the fallback.
    let without = Aggregator::start(&[]);
    let job = Job::start(&mut without.ranks(&["bits", "1", "2"]));
    job.wait_for_line(DEADLINE, |line| line == "started");
    without.signal(Signal::KILL);
    assert_eq!(bits(&job.finish(DEADLINE), 1), with);
}

#[test]
fn killed_aggregators_change_no_bits() {
    for _ in 0..3 {
        interrupted(Signal::KILL, moment());
    }
}

#[test]
fn stopped_aggregators_change_no_bits() {
    for _ in 0..2 {
        interrupted(Signal::STOP, moment());
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_kills_and_fifty_stops() {
    (0..100).for_each(|_| interrupted(Signal::KILL, moment()));
    (0..50).for_each(|_| interrupted(Signal::STOP, moment()));
}

#[test]
fn require_names_the_reason_on_every_rank_and_auto_goes_on() {
    let small = Aggregator::start(&["--memory", "64K"]);
    let refused = Job::start(&mut small.ranks(&["bits", "1"])).finish(DEADLINE);
    assert!(!refused.status.success(), "{refused:?}");
    let named = |line: &&str| line.contains("RINGFOLD_INNETWORK=require cannot be met");
    let lines: Vec<_> =
        refused.stderr.lines().chain(refused.stdout.lines()).filter(named).collect();
    assert!(lines.len() >= HOSTS && lines.iter().all(|it| it.contains("refused")), "{refused:?}");
    let mut auto = small.ranks(&["bits", "1"]);
    let auto = Job::start(auto.env("RINGFOLD_INNETWORK", "auto")).finish(DEADLINE);
    bits(&auto, 1);
    let logged = auto.stderr.matches("no in-network reduction by these aggregators").count();
    assert_eq!(logged, 1, "{auto:?}");
}

#[test]
fn another_site_secret_is_refused() {
    let [one, other] = [(); 2].map(|()| Aggregator::start(&[]));
    let mut command = one.ranks(&["bits", "1"]);
    let refused = Job::start(command.env("HOME", &other.home)).finish(DEADLINE);
    assert!(!refused.status.success(), "{refused:?}");
    let all = format!("{}{}", refused.stdout, refused.stderr);
    assert!(all.contains("holds another site secret"), "{refused:?}");
}
