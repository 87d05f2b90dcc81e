//! allreduce-perf and its expected output.

use std::path::PathBuf;
use std::time::Duration;

use ringfold_harness::{Outcome, program};

/// Arguments for small sizes, with each result checked.
pub(crate) const ARGS: &[&str] = &["-b", "8", "-e", "64K", "-f", "8", "-c", "1"];

/// The deadline of a job.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn perf() -> PathBuf {
    program::binary("allreduce-perf")
}

/// Checks that one job of `ranks` ranks ran under `launcher`, with correct results.
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
