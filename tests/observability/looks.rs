//! Many looks at jobs that hang, run and compute.

use std::time::{Duration, Instant};

use ringfold_harness::{Random, Ranks, program};
use rustix::process::Signal;
use serde_json::Value;

use crate::look;

/// The ways to hang.
const HANGS: [&str; 5] = ["stop", "sleep", "receive", "loop", "pass"];

/// Hangs of a whole suite: each way, 8 and 64 ranks, two transports, twice.
const HANGS_MAX: usize = 40;

/// The time for which a job hangs before the one look at it.
const HANGING: Duration = Duration::from_secs(8);

/// The time that a look may take. Only the whole suite counts slower ones, and prints them.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Starts ranks of which `rank` strays after 100 calls.
fn stray(size: usize, what: &str, rank: usize, transport: &str) -> Ranks {
    let task = if what == "stop" { "sleep" } else { what };
    let ranks = Ranks::start(size, |_, command| {
        command.args(["stray", task, &rank.to_string()]).env("RINGFOLD_TRANSPORT", transport);
    });
    ranks.wait_for("started");
    if what == "stop" {
        ranks.0[rank].signal(Signal::STOP);
    }
    ranks
}

/// One look at a hanging job. Returns whether it names the rank, its text, and its time.
fn is_named(ranks: &Ranks, rank: usize, what: &str) -> (bool, Value, Duration) {
    let begin = Instant::now();
    let (job, status) = look(ranks);
    let took = begin.elapsed();
    let sentence = job["sentence"].as_str().unwrap_or_default();
    let word = match what {
        "stop" => "is stopped by a signal",
        "receive" => "for a message of rank 0 with tag 7",
        "pass" => "for a message of rank",
        _ => "has been outside ringfold for",
    };
    let is_right = matches!(status, 11 | 12)
        && job["late"] == serde_json::json!([rank])
        && sentence.contains(word);
    (is_right, job, took)
}

/// Looks at a job of eight ranks that go on, so many times. Returns the false accusations.
fn accusations(task: [&str; 2], transport: &str, looks: usize) -> Vec<Value> {
    let ranks = Ranks::start(8, |_, command| {
        command.args(task).env("RINGFOLD_TRANSPORT", transport);
    });
    ranks.wait_for("started");
    let look = |_| {
        let (job, status) = look(&ranks);
        let is_right = matches!(status, 0 | 10) && job["late"] == Value::Array(Vec::new());
        (!is_right).then_some(job)
    };
    (0..looks).filter_map(look).collect()
}

#[test]
fn a_computing_job_is_not_accused() {
    assert_eq!(accusations(["pace", "700"], "shm", 20), Vec::<Value>::new());
}

/// Prints the figures of `tests/long looks`.
#[test]
#[ignore = "it takes half an hour: tests/long looks"]
fn forty_hangs_and_a_thousand_looks() {
    // The first use builds the programs.
    drop(program::binary("ringfold"));
    let mut random = Random::seeded();
    let (mut right, mut all, mut slow, mut longest) = (0, 0, 0, Duration::ZERO);
    for (number, what) in HANGS.into_iter().cycle().take(HANGS_MAX).enumerate() {
        let size = [8, 64][number / HANGS.len() % 2];
        let transport = ["shm", "tcp"][number / HANGS.len() / 2 % 2];
        // Rank 0 waits for no message of itself, and the last one lets no other wait.
        let rank = random.between(1, size - 2);
        let ranks = stray(size, what, rank, transport);
        std::thread::sleep(HANGING);
        let (is_right, job, took) = is_named(&ranks, rank, what);
        (all, longest) = (all + 1, longest.max(took));
        (right, slow) = (right + usize::from(is_right), slow + usize::from(took > AT_ONCE));
        println!("{what} of rank {rank} of {size} by {transport}: {is_right} in {took:?}");
        if !is_right {
            println!("{}: {}", job["verdict"], job["sentence"]);
        }
    }
    println!(
        "{right} of {all} hangs named right in one look; {slow} took over 1 s; longest {longest:?}"
    );
    let mut false_ones = Vec::new();
    for (task, transport) in [
        (["allreduce", "8"], "shm"),
        (["allreduce", "8"], "tcp"),
        (["pace", "700"], "shm"),
        (["pace", "3000"], "tcp"),
    ] {
        let found = accusations(task, transport, 250);
        println!("{task:?} by {transport}: {} of 250 looks accuse falsely", found.len());
        false_ones.extend(found);
    }
    assert!(right == all && false_ones.is_empty(), "{false_ones:?}");
}
