//! allreduce-perf, and what it must have printed.

use std::path::PathBuf;
use std::time::Duration;

use ringfold_tests::{Outcome, program};

/// Small sizes, each result checked.
pub(crate) const ARGS: &[&str] = &["-b", "8", "-e", "64K", "-f", "8", "-c", "1"];

/// No job here takes this long unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn perf() -> PathBuf {
    program::binary("allreduce-perf")
}

/// One job of `ranks` ran under `launcher`, and all its results were right.
pub(crate) fn assert_right(outcome: &Outcome, launcher: &str, ranks: usize) {
    assert!(outcome.status.success(), "{outcome:?}");
    let lines = |begin: &str| outcome.stdout.lines().filter(|l| l.starts_with(begin)).count();
    assert_eq!(lines("# Out of bounds values : 0 OK"), 1, "{outcome:?}");
    assert_eq!(lines("# Out of bounds values"), 1, "{outcome:?}");
    assert_eq!(lines("#  Rank "), ranks, "{outcome:?}");
    for rank in 0..ranks {
        let name = format!("rank {rank} of {ranks}, launcher {launcher}\n");
        assert_eq!(outcome.stderr.matches(&name).count(), 1, "{name}{outcome:?}");
    }
}
