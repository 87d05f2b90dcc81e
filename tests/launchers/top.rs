//! `ringfold top` beside jobs of other launchers.

use std::process::Command;
use std::time::Instant;

use ringfold_harness::{Job, Outcome, program};
use rustix::process::Signal;
use serde_json::Value;

use crate::perf::DEADLINE;

/// The arguments of a launcher that start a rank which prints its process id and "started". Rank 3
/// sleeps, and the others wait for it.
fn strays() -> [String; 3] {
    let rank = program::binary("rank").display().to_string();
    // torchrun makes `$` of `$$`.
    ["sh".into(), "-c".into(), format!("sh -c 'echo pid $PPID' && exec '{rank}' stray sleep")]
}

/// Starts four ranks by a launcher, and looks at them until `top` says that rank 3 hangs. No look
/// names another rank.
pub(crate) fn names_the_hung_rank(launcher: &mut Command) {
    let job = Job::start(launcher.args(strays()));
    let pid = job.line("pid ");
    (0..4).for_each(|_| drop(job.line("started")));
    let begin = Instant::now();
    loop {
        let mut top = Command::new(program::binary("ringfold"));
        let seen = Outcome::of(top.args(["top", "--json", pid.trim()]));
        let all: Value =
            serde_json::from_str(&seen.stdout).unwrap_or_else(|e| panic!("{e}: {seen:?}"));
        let shown = &all["jobs"][0];
        let late = shown["late"].as_array().unwrap();
        assert!(late.iter().all(|rank| rank == 3), "{shown}");
        if seen.code() == 12 {
            let sentence = shown["sentence"].as_str().unwrap();
            assert!(sentence.contains("3 ranks wait for it in allreduce"), "{sentence}");
            break;
        }
        assert!(begin.elapsed() < DEADLINE, "{shown}");
    }
    job.signal(Signal::TERM);
    let outcome = job.finish(DEADLINE);
    assert!(!outcome.status.success(), "{outcome:?}");
}
