//! The program of `docs/rust.md`, and its commands as they stand there.

use std::env;
use std::fs;
use std::process::Command;

use ringfold_harness::{Home, Job, program};

use crate::job::SOON;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The text of the blocks of the page in a language.
fn blocks<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let odd = page.split("\n```").skip(1).step_by(2);
    odd.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

#[test]
fn the_page_has_the_program_of_the_example() {
    let read = |path: &str| fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
    let page = read("docs/rust.md");
    let programs: Vec<_> = blocks(&page, "rust,no_run").collect();
    assert_eq!(programs, [read("crates/ringfold/examples/checkpoint.rs").trim_end()]);
}

#[test]
fn a_job_continues_from_the_state_that_a_survivor_saved() {
    let page = fs::read_to_string(format!("{ROOT}/docs/rust.md")).unwrap();
    let jobs = blocks(&page, "sh").find(|block| block.starts_with("ringrun")).unwrap();
    let (ringrun, example) = (program::binary("ringrun"), program::example("checkpoint"));
    let own = [&ringrun, &example].map(|program| program.parent().unwrap().to_owned());
    let system = env::split_paths("/usr/local/bin:/usr/bin:/bin");
    let home = Home::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("set -u\n{jobs}")]).current_dir(home.path());
    shell
        .env("HOME", home.path())
        .env("PATH", env::join_paths(own.into_iter().chain(system)).unwrap());
    for name in ["RANK", "WORLD_SIZE", "RINGFOLD_DEBUG"] {
        shell.env_remove(name);
    }
    let outcome = Job::start(&mut shell).finish(3 * SOON);
    assert!(outcome.status.success(), "{outcome:?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let [status, saved, begins, ten @ .., end] = &lines[..] else { panic!("{outcome:?}") };
    assert_eq!(*status, "ringrun ends with status 137", "{outcome:?}");
    let (step, _) = saved.split_once(' ').unwrap();
    assert!(step.parse::<u32>().is_ok_and(|step| (10..400).contains(&step)), "{outcome:?}");
    assert_eq!(*begins, format!("begins at step {step}"), "{outcome:?}");
    assert!(ten.is_empty(), "the second job begins behind step 10: {outcome:?}");
    assert_eq!(*end, "the weight is 3.000 after 400 steps", "{outcome:?}");
    let cause = "on rank 0: the process of rank 2 is gone\n";
    assert_eq!(outcome.stderr.matches(cause).count(), 1, "{outcome:?}");
    let has_saved = format!("rank 0 has saved step {step}\n");
    assert_eq!(outcome.stderr.matches(&has_saved).count(), 1, "{outcome:?}");
}
