//! A program that launches ranks by itself, as allreduce-perf does: without `ringrun`, and as a
//! process that has another child.
//!
//! It has a `main` of its own, because a test harness would not become a keeper.

mod support;

use std::process::{Command, ExitCode};

use ringfold_launcher::{End, Job, Status, Verdict, intercept, run};
use ringfold_types::Rank;

fn main() -> ExitCode {
    if let Some(status) = intercept() {
        return status;
    }
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    succeeds();
    fails();
    cannot_begin();
    let other_lives = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(other_lives, "a child that is no rank was ended");
    ExitCode::SUCCESS
}

fn shell(script: &str, ranks: usize) -> Job {
    let mut job = Job::new("sh");
    job.args = vec!["-c".into(), script.into()];
    job.ranks = Some(ranks);
    job
}

fn succeeds() {
    let mut job = shell("test \"$GIVEN\" = 1 && test $RINGFOLD_SIZE = 3", 3);
    job.env.push(("GIVEN".into(), "1".into()));
    let outcome = run(&job).unwrap();
    assert_eq!((&outcome.verdict, outcome.exit_code()), (&Verdict::Success, 0), "{outcome}");
    assert!(outcome.ranks.iter().all(|rank| rank.end == End::Alone(Status::Exited(0))));
}

fn fails() {
    let mark = support::mark();
    // A rank's parent is its keeper.
    let script = format!("setsid sleep {mark} & sleep 0.1; kill -9 $PPID; wait");
    let mut job = shell(&script, 2);
    job.grace = std::time::Duration::ZERO;
    let outcome = run(&job).unwrap();
    assert!(matches!(outcome.verdict, Verdict::HostLost(..)), "{outcome}");
    support::assert_gone(&mark);

    let outcome = run(&shell("exit $((RINGFOLD_RANK * 7))", 2)).unwrap();
    assert_eq!(outcome.verdict, Verdict::RankFailed(Rank(1)), "{outcome}");
    assert_eq!(outcome.exit_code(), 7);
}

fn cannot_begin() {
    let error = run(&shell("true", 0)).unwrap_err();
    assert_eq!(error.to_string(), "a job has 1 to 16384 ranks, not 0");
}
