//! Ranks that die, stop or leave while the others wait for an aggregator's results.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use rustix::process::{Pid, kill_process};

use super::*;

/// Far beyond the promised bound of 1 s, for loaded machines. The tests print the actual time.
const SOON: Duration = Duration::from_secs(10);

/// Ranks without a launcher, which would end them all.
struct Members(Vec<Child>);

impl Members {
    /// Starts ranks of hosts of their own.
    fn start(home: &Home, aggregators: &str, task: &[&str]) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let start = |rank: usize| {
            let mut command = Command::new(program::binary("rank"));
            command.args(task).env("RANK", rank.to_string());
            command.env("WORLD_SIZE", HOSTS.to_string()).env("RINGFOLD_ALGO", IN_NETWORK);
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("RINGFOLD_SECRET", &"5ec2e7".repeat(11)[..64]);
            command.env("RINGFOLD_TRANSPORT", "tcp").env("RINGFOLD_TIMEOUT", "3");
            command.env("RINGFOLD_HOSTID", format!("host-{rank}"));
            command.env("HOME", home.path()).env_remove("RINGFOLD_SITE_SECRET_FILE");
            if !aggregators.is_empty() {
                command.env("RINGFOLD_AGGREGATORS", aggregators);
                command.env("RINGFOLD_INNETWORK", "require");
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        Self((0..HOSTS).map(start).collect())
    }

    fn signal(&self, rank: usize, signal: Signal) {
        let pid = Pid::from_raw(self.0[rank].id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until a rank prints a line with this beginning, and returns its rest.
    fn line(&mut self, rank: usize, word: &str) -> String {
        let output = self.0[rank].stdout.as_mut().unwrap();
        // Byte by byte: a buffer would swallow the lines that follow.
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = BufReader::with_capacity(1, &mut *output).read_until(b'\n', &mut line);
            assert!(read.unwrap() > 0, "rank {rank} never prints {word}");
            let text = String::from_utf8_lossy(&line);
            if let Some(rest) = text.trim_end().strip_prefix(word) {
                return rest.to_owned();
            }
        }
    }

    /// The causes that all ranks but `except` print, which must be the same.
    fn cause(&mut self, except: usize) -> String {
        let others = (0..HOSTS).filter(|rank| *rank != except);
        let causes: Vec<String> = others.map(|rank| self.line(rank, "cause ")).collect();
        assert!(causes.iter().all(|cause| cause == &causes[0]), "{causes:?}");
        causes[0].clone()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Sends a signal to a rank amid its calls. Returns the others' cause, and the time to it.
fn signalled(bytes: &str, victim: usize, signal: Signal) -> (String, Duration) {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let mut members = Members::start(&home, &aggregator.at, &["allreduce", bytes]);
    (0..HOSTS).for_each(|rank| drop(members.line(rank, "started")));
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    members.signal(victim, signal);
    let cause = members.cause(victim);
    println!("{bytes} B, rank {victim}: {signal:?}, {:?}: {cause}", began.elapsed());
    (cause, began.elapsed())
}

#[test]
fn a_rank_that_dies_amid_a_call_is_the_usual_failure() {
    for (bytes, victim) in [("8", 2), ("4000000", 1), ("8", 0)] {
        let (cause, took) = signalled(bytes, victim, Signal::KILL);
        assert!(cause.contains(&format!("the process of rank {victim} is gone")), "{cause}");
        assert!(took < SOON, "{took:?}");
    }
}

#[test]
fn a_rank_that_stops_amid_a_call_is_the_usual_failure() {
    for (bytes, victim) in [("8", 2), ("4000000", 1)] {
        let (cause, took) = signalled(bytes, victim, Signal::STOP);
        assert!(cause.contains(&format!("rank {victim}")), "{cause}");
        assert!(cause.contains("not answer"), "{cause}");
        assert!(took < SOON, "{took:?}");
    }
}

/// The cause with aggregators is that without, and comes long before the timeout.
#[test]
fn a_rank_that_leaves_while_others_call_is_the_usual_failure() {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let mut usual = Members::start(&home, "", &["leaves"]);
    let usual = usual.cause(1);
    assert!(usual.contains("rank 1"), "{usual}");
    let began = Instant::now();
    let mut members = Members::start(&home, &aggregator.at, &["leaves"]);
    assert_eq!(members.cause(1), usual);
    println!("{:?}: {usual}", began.elapsed());
}
