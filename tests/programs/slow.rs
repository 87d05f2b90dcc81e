//! The commands of `docs/slow.md`, as they stand there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use ringfold_harness::{Home, Job, Outcome, program};

/// The page.
const PAGE: &str = include_str!("../../docs/slow.md");

/// Far beyond the time of a command, for loaded machines.
const LONG: Duration = Duration::from_secs(300);

/// Whether a line of the log of a rank names the rank, and the seconds since it began.
fn is_stamped(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    let [moment, "rank", rank, seconds, "s", "INFO" | "WARN", ..] = words[..] else { return false };
    let is_moment = moment.starts_with("20") && moment.ends_with('Z');
    is_moment && rank.parse().is_ok_and(|it: u32| it < 4) && seconds.parse::<f64>().is_ok()
}

/// Whether a command did what the page says.
fn is_expected(command: &str, outcome: &Outcome) -> bool {
    let Outcome { stdout, stderr, .. } = outcome;
    let has = |text: &str| stdout.contains(text);
    match command {
        // Other jobs of this user may run, and this host may have faults.
        "ringfold top" => matches!(outcome.code(), 0 | 10..=12) && !stdout.is_empty(),
        "ringfold doctor" => matches!(outcome.code(), 0 | 1) && has("ok "),
        _ if !outcome.status.success() => false,
        _ if command.contains("--profile") => has("of rank") && has("algorithm"),
        _ if command.contains("explain") => {
            has(" is chosen: ")
                && has("the fastest in the measurement") == command.contains("--plan")
        }
        _ if command.contains("INFO") => {
            let of_ranks = stderr.lines().filter(|line| line.contains(" ringfold::"));
            let stamped = of_ranks.clone().filter(|line| is_stamped(line)).count();
            let is_of =
                |rank: &str| stderr.lines().any(|it| it.contains(&format!(" rank {rank} ")));
            stamped == of_ranks.count() && ["0", "1", "2", "3"].into_iter().all(is_of)
        }
        _ => true,
    }
}

#[test]
fn the_commands_of_the_page_work() {
    let home = Home::new();
    let perf = program::binary("allreduce-perf");
    let train = home.path().join("train");
    fs::write(&train, format!("#!/bin/sh\nexec {} -b 1M -e 1M -n 3\n", perf.display())).unwrap();
    fs::set_permissions(&train, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", perf.parent().unwrap().display());
    let blocks = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert_eq!(commands.len(), 8, "{commands:?}");
    for command in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(home.path());
        shell.env("HOME", home.path()).env("PATH", &path);
        for name in ["RANK", "WORLD_SIZE", "RINGFOLD_DEBUG"] {
            shell.env_remove(name);
        }
        let outcome = Job::start(&mut shell).finish(LONG);
        assert!(is_expected(command, &outcome), "{command}: {outcome:?}");
    }
}
