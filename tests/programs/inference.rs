//! An inference job. Its words do not depend on the number of ranks, the transport or the memory.

use std::process::Command;
use std::time::Duration;

use ringfold_harness::{Job, program};

/// The deadline of a job.
const LIMIT: Duration = Duration::from_secs(120);

/// The texts that the example prints, each as a line.
fn texts(ranks: usize, transport: &str, more: &[&str]) -> Vec<String> {
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", &ranks.to_string()]).arg(program::example("inference"));
    command.args(["--texts", "3", "--words", "16"]).args(more);
    let outcome = Job::start(command.env("RINGFOLD_TRANSPORT", transport)).finish(LIMIT);
    assert!(outcome.status.success(), "{ranks} ranks over {transport}: {outcome:?}");
    let lines = outcome.stdout.lines().filter(|line| line.starts_with("text "));
    lines.map(str::to_owned).collect()
}

#[test]
fn parts_of_a_model_find_the_words_of_the_whole() {
    let alone = texts(1, "shm", &[]);
    assert_eq!(alone.len(), 3);
    assert!(alone.iter().all(|text| text.matches(", ").count() == 8 + 16 - 1), "{alone:?}");
    for ranks in [2, 4] {
        for (transport, more) in [("shm", &[][..]), ("shm", &["--copies"]), ("tcp", &[])] {
            assert_eq!(texts(ranks, transport, more), alone, "{ranks} ranks, {transport} {more:?}");
        }
    }
}
