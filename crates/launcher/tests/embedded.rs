//! A program that launches ranks without `ringrun`, as allreduce-perf does, and has another child.
//!
//! It has its own `main`, because a test harness would not become a node agent.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, though it has its own main")]

mod support;

use std::process::{Command, ExitCode};

use ringfold_bootstrap::{Control, Options, discover};
use ringfold_launcher::{End, Job, JobResult, Status, intercept, run};
use ringfold_types::Rank;
use rustix::event::{PollFd, PollFlags, poll};

fn main() -> ExitCode {
    if let Some(status) = intercept() {
        return status;
    }
    if std::env::args().nth(1).as_deref() == Some("rank") {
        return rank();
    }
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    succeeds();
    fails();
    cannot_begin();
    meets();
    agrees();
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
    assert_eq!((&outcome.result, outcome.exit_code()), (&JobResult::Success, 0), "{outcome}");
    assert!(outcome.ranks.iter().all(|rank| rank.end == End::Alone(Status::Exited(0))));
}

fn fails() {
    let mark = support::mark();
    // A rank's parent is its node agent.
    let script = format!("setsid sleep {mark} & sleep 0.1; kill -9 $PPID; wait");
    let mut job = shell(&script, 2);
    job.grace = Some(std::time::Duration::ZERO);
    let outcome = run(&job).unwrap();
    assert!(matches!(outcome.result, JobResult::HostLost(..)), "{outcome}");
    support::assert_gone(&mark);

    let outcome = run(&shell("exit $((RINGFOLD_RANK * 7))", 2)).unwrap();
    assert_eq!(outcome.result, JobResult::RankFailed(Rank(1)), "{outcome}");
    assert_eq!(outcome.exit_code(), 7);
}

fn cannot_begin() {
    let error = run(&shell("true", 0)).unwrap_err();
    assert_eq!(error.to_string(), "a job has 1 to 65536 ranks, not 0");
}

/// A job of this program as its own ranks.
fn ranks(what: &str, count: usize) -> Job {
    let mut job = Job::new(std::env::current_exe().unwrap());
    job.args = vec!["rank".into(), what.into()];
    job.ranks = Some(count);
    job
}

fn meets() {
    let outcome = run(&ranks("meet", 5)).unwrap();
    assert_eq!(outcome.result, JobResult::Success, "{outcome}");
}

fn agrees() {
    let outcome = run(&ranks("die", 3)).unwrap();
    assert_eq!(outcome.result, JobResult::RankFailed(Rank(1)), "{outcome}");
    assert_eq!(outcome.exit_code(), 134);
    let report = outcome.report.as_ref().expect("rank 0 has lived to report");
    assert!(report.contains("rank 1"), "{outcome}");
    assert!(outcome.to_string().starts_with("the ranks agree: "), "{outcome}");
}

/// A rank that joins the others. Rank 1 may then die, which the others must learn.
#[expect(clippy::disallowed_methods, reason = "a rank is found in its environment")]
fn rank() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    let mut identity = discover(&variable).unwrap();
    let (rank, size) = (identity.rank, identity.size);
    let secret = identity.secret(&variable, Options::default().timeout).unwrap();
    let peer_info = rank.0.to_le_bytes().to_vec();
    let (control, peer_infos) =
        Control::join(identity, secret, peer_info, Options::default()).unwrap();
    assert!((0..size).all(|at| peer_infos[at] == Rank::at(at).0.to_le_bytes()));
    if std::env::args().nth(2).as_deref() != Some("die") {
        control.leave().unwrap();
        return ExitCode::SUCCESS;
    }
    if rank == Rank(1) {
        std::process::abort();
    }
    let mut wake = [PollFd::from_borrowed_fd(control.wake_fd(), PollFlags::IN)];
    poll(&mut wake, None).unwrap();
    assert!(control.failure_cause().is_some());
    control.leave().unwrap_err();
    ExitCode::FAILURE
}
