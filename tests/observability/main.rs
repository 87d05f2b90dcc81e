//! `ringfold top`, `ringfold inspect`, metrics and traces beside jobs that run, hang and fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dumps;
mod figures;
mod hosts;
mod looks;
mod metrics;
mod rates;
mod trace;
mod view;

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ringfold_harness::{Folder, Home, Job, Ranks, program};
use rustix::process::Signal;
use serde_json::Value;

/// Far beyond the time of a verdict, for loaded machines.
const LONG: Duration = Duration::from_secs(120);

/// Runs `ringfold` with these arguments.
fn ringfold(args: &[&str]) -> Output {
    Command::new(program::binary("ringfold")).args(args).output().unwrap()
}

/// The job of `ranks` as one look of `top` shows it, and the exit status.
fn look(ranks: &Ranks) -> (Value, i32) {
    let seen = ringfold(&["top", "--json", &ranks.0[0].id().to_string()]);
    let text = String::from_utf8_lossy(&seen.stdout);
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {seen:?}"));
    (all["jobs"][0].clone(), seen.status.code().unwrap())
}

/// Eight ranks of which rank 3 does `what` after 100 calls, while the others call on.
fn stray(what: &str) -> Ranks {
    Ranks::start(8, |_, command| {
        command.args(["stray", what]).env("RINGFOLD_TRANSPORT", "shm");
    })
}

/// Looks at the job until it hangs. Every look names rank 3 or no rank, and the last one says
/// `word` and how many ranks wait.
fn hangs(ranks: &Ranks, word: &str, waiters: usize) {
    let begin = Instant::now();
    loop {
        let (job, status) = look(ranks);
        let late = job["late"].as_array().unwrap();
        assert!(late.iter().all(|rank| rank == 3), "{job}");
        if status == 12 {
            let sentence = job["sentence"].as_str().unwrap();
            assert!(late.len() == 1 && job["verdict"] == "hung", "{job}");
            assert!(sentence.contains(word), "{sentence}");
            let waiting = format!("{waiters} ranks wait for it in allreduce #102");
            assert!(sentence.ends_with(&waiting), "{sentence}");
            return;
        }
        assert!(begin.elapsed() < LONG, "{job}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_stopped_rank_is_named() {
    let ranks = stray("sleep");
    ranks.wait_for("started");
    // The others wait in the call once the first look shows them there.
    ranks.0[3].signal(Signal::STOP);
    hangs(&ranks, "is stopped by a signal", 7);
}

#[test]
fn a_rank_that_sleeps_is_named() {
    let ranks = stray("sleep");
    ranks.wait_for("started");
    hangs(&ranks, "rank 3 (PID ", 7);
}

#[test]
fn a_rank_in_an_endless_loop_is_named() {
    let ranks = stray("loop");
    ranks.wait_for("started");
    hangs(&ranks, "outside ringfold for", 7);
}

#[test]
fn a_rank_that_waits_for_a_message_is_named() {
    for what in ["receive", "start"] {
        let ranks = stray(what);
        ranks.wait_for("started");
        hangs(&ranks, "s for a message of rank 0 with tag 7, which is in allreduce #102", 7);
    }
}

#[test]
fn a_rank_whose_message_does_not_come_is_named() {
    let ranks = stray("pass");
    ranks.wait_for("started");
    hangs(&ranks, "s for a message of rank 3 with tag 7, which has been outside", 3);
}

#[test]
fn a_healthy_job_is_not_accused() {
    let ranks = Ranks::start(8, |_, command| {
        command.args(["allreduce", "8"]).env("RINGFOLD_TRANSPORT", "shm");
    });
    ranks.wait_for("started");
    let (mut has_sent, mut has_waited) = (false, 0.0);
    for _ in 0..20 {
        let (job, status) = look(&ranks);
        assert!(matches!(status, 0 | 10) && job["late"] == Value::Array(Vec::new()), "{job}");
        let ranks = job["groups"][0]["ranks"].as_array().unwrap();
        assert_eq!(ranks.len(), 8, "{job}");
        for shown in ranks.iter().chain([&job]) {
            let sends = shown["sends"].as_array().unwrap();
            assert!(
                sends.iter().all(|it| it["transport"] == "shm" && it["failovers"] == 0),
                "{job}"
            );
        }
        has_sent |= job["sends"][0]["bytes_per_second"].as_u64() > Some(0);
        let waited = ranks.iter().map(|it| it["waited_seconds"].as_f64().unwrap()).sum::<f64>();
        assert!(waited >= has_waited, "{waited} s after {has_waited} s: {job}");
        has_waited = waited;
    }
    assert!(has_sent && has_waited > 0.0, "ranks on few cores wait");
}

#[test]
fn records_of_killed_and_surviving_ranks_are_in_the_dump() {
    let folder = Folder::new();
    let dump = folder.at("dump");
    let ranks = Ranks::start(4, |_, command| {
        command.args(["allreduce", "8"]).env("RINGFOLD_TRANSPORT", "shm");
        command.env("RINGFOLD_DUMP", &dump);
    });
    ranks.wait_for("started");
    let killed = ranks.0[2].id();
    ranks.0[2].signal(Signal::KILL);
    let (causes, _) = ranks.causes(2);
    // The record of the killed process is there after its death.
    let seen = ringfold(&["inspect", &killed.to_string()]);
    let text = String::from_utf8_lossy(&seen.stdout);
    assert!(seen.status.success() && text.contains("allreduce [f32 x 2, max]"), "{seen:?}");
    drop(ranks.finish(LONG));
    let seen = ringfold(&["inspect", &dump]);
    let text = String::from_utf8_lossy(&seen.stdout);
    assert!(text.contains("4 ranks, 4 of them here"), "{text}");
    assert!(text.contains(&format!("failure on ranks 0 1 3: {}", causes[0])), "{text}");
    for rank in 0..4 {
        let has_calls = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next() == Some(&rank.to_string()) && words.next() == Some("begins")
        };
        assert!(text.lines().any(has_calls), "{text}");
    }
}

#[test]
fn an_unwritable_dump_costs_a_warning() {
    let folder = Folder::new();
    let file = folder.file("file", "");
    let ranks = Ranks::start(2, |_, command| {
        command.args(["rich", "100"]).env("RINGFOLD_DUMP", &file);
    });
    for outcome in ranks.finish(LONG) {
        assert!(outcome.status.success(), "{outcome:?}");
        let warning = format!("RINGFOLD_DUMP={file} cannot be written");
        assert_eq!(outcome.stderr.matches(&warning).count(), 1, "{outcome:?}");
    }
}

#[test]
fn a_job_that_is_not_there_is_named() {
    for command in ["top", "inspect"] {
        let seen = ringfold(&[command, "no-such-job"]);
        let text = String::from_utf8_lossy(&seen.stderr);
        assert!(seen.status.code() == Some(2) && text.contains("no-such-job"), "{seen:?}");
    }
}

/// The commands of `docs/observability.md`, as they stand there.
#[test]
fn the_commands_of_the_page_work() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/observability.md");
    let page = fs::read_to_string(page).unwrap();
    let odd = page.split("\n```").skip(1).step_by(2);
    let commands: Vec<_> = odd.filter_map(|block| block.strip_prefix("sh\n")).collect();
    assert_eq!(commands.len(), 5, "top, top --json, inspect, a profile and a trace");
    let home = Home::new();
    let rank = program::own("rank");
    let train = format!("#!/bin/sh\nexec {} differ 8 20\n", rank.display());
    let train_at = home.path().join("train");
    fs::write(&train_at, train).unwrap();
    let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&train_at, may_run).unwrap();
    let folder = program::binary("ringfold").parent().unwrap().to_owned();
    assert_eq!(program::binary("allreduce-perf").parent(), Some(&*folder));
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let run = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(home.path());
        shell.env("HOME", home.path()).env("PATH", &path).env_remove("RINGFOLD_DEBUG");
        Job::start(&mut shell).finish(LONG)
    };
    for command in &commands[..2] {
        let outcome = run(command);
        // Other jobs of this user may run.
        assert!(matches!(outcome.code(), 0 | 10..=12), "{outcome:?}");
    }
    let outcome = run(commands[2]);
    assert!(outcome.status.success(), "{outcome:?}");
    let text = &outcome.stdout;
    assert!(text.contains("differ from call #22 on"), "{outcome:?}");
    let sides = text.lines().find(|line| line.contains("#22 *")).unwrap();
    assert!(sides.contains("allreduce") && sides.contains("broadcast"), "{outcome:?}");
    let outcome = run(commands[3]);
    assert!(outcome.status.success() && outcome.stdout.contains("of rank"), "{outcome:?}");
    // These ranks fail again.
    let outcome = run(commands[4]);
    let text = fs::read_to_string(home.path().join("trace.json"));
    trace::Trace::check(&text.unwrap_or_else(|e| panic!("{e}: {outcome:?}")));
}
