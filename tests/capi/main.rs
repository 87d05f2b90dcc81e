//! The interface for C: programs in C against the installed library, its header, and its exported
//! symbols. The programs are in `crates/capi/tests`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod installed;
mod page;
mod same;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use installed::{Installed, SOURCES};
use ringfold_harness::{Folder, Job, Outcome, needed, program};

const DEADLINE: Duration = Duration::from_secs(120);

/// Valgrind runs a program many times slower.
const CHECKED_DEADLINE: Duration = Duration::from_secs(400);

fn run(command: &mut Command, limit: Duration) -> Outcome {
    // A launcher around the tests must not reach the programs.
    for name in ["RANK", "WORLD_SIZE", "RINGFOLD_DEBUG"] {
        command.env_remove(name);
    }
    let outcome = Job::start(command).finish(limit);
    assert!(outcome.status.success(), "{command:?}: {outcome:?}");
    outcome
}

fn ringrun(ranks: usize) -> Command {
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", &ranks.to_string(), "--timeout", "100"]);
    command
}

/// Runs a program as jobs of several sizes.
fn suits_jobs(name: &str) {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile(name);
    for (ranks, transport) in [(1, "shm"), (2, "shm"), (3, "shm"), (4, "shm"), (3, "tcp")] {
        let mut command = ringrun(ranks);
        command.arg(&program).env("RINGFOLD_TRANSPORT", transport);
        let outcome = run(&mut command, DEADLINE);
        assert_eq!(outcome.stdout.matches(" is content\n").count(), ranks, "{outcome:?}");
    }
}

#[test]
fn operations_give_the_results_of_plain_c() {
    suits_jobs("operations");
}

#[test]
fn messages_and_groups_of_calls_arrive_or_are_refused() {
    suits_jobs("messages");
}

#[test]
fn started_collectives_end_with_the_results_of_plain_c() {
    suits_jobs("requests");
}

#[test]
fn parts_and_operations_of_the_program_give_the_results_of_plain_c() {
    suits_jobs("parts");
}

#[test]
fn registered_memory_is_ordinary_memory() {
    suits_jobs("registrations");
}

#[test]
fn profiles_have_the_calls_between_begin_and_end() {
    suits_jobs("profile");
}

#[test]
fn the_static_library_suffices() {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile_statically("operations");
    assert_eq!(run(&mut Command::new(program), DEADLINE).stdout, "rank 0 of 1 is content\n");
}

#[test]
fn misuse_is_an_error_with_a_message() {
    let Some(installed) = Installed::get() else { return };
    let outcome = run(&mut Command::new(installed.compile("misuse")), DEADLINE);
    assert_eq!(outcome.stdout, "content\n");
}

#[test]
fn ranks_meet_without_a_launcher_abort_and_grow() {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile("meet");
    for way in ["id", "store", "abort", "fork", "grow"] {
        let outcome = run(Command::new(&program).args([way, "3", "3"]), DEADLINE);
        assert_eq!(outcome.stdout, "content\n");
    }
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    let Some(installed) = Installed::get() else { return };
    if !needed::are_there("valgrind", &["valgrind"]) {
        return;
    }
    let check = |mut command: Command, name, args: &[&str]| {
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
        command.arg(format!("--suppressions={SOURCES}/tests/valgrind.supp"));
        command.arg(installed.compile(name)).args(args);
        run(&mut command, CHECKED_DEADLINE);
    };
    let alone = || Command::new("valgrind");
    check(alone(), "misuse", &[]);
    check(alone(), "operations", &[]);
    check(alone(), "meet", &["id", "2", "4"]);
    for name in ["messages", "parts"] {
        check(alone(), name, &[]);
        let mut job = ringrun(2);
        job.arg("valgrind");
        check(job, name, &[]);
    }
}

#[test]
fn the_example_learns() {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile_file(&format!("{SOURCES}/examples/regression.c"));
    let outcome = run(ringrun(3).arg(program), DEADLINE);
    assert!(outcome.stdout.contains("3 ranks: y = 3.000 x + -1.000"), "{outcome:?}");
}

/// The functions that the header declares.
pub(crate) fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(format!("{SOURCES}/ringfold.h")).unwrap();
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = code.filter_map(|line| {
        let name = line.split('(').next()?.rsplit([' ', '*']).next()?;
        (line.contains('(') && name.starts_with("ringfold_")).then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn the_library_exports_exactly_the_functions_of_the_header() {
    let Some(installed) = Installed::get() else { return };
    if !needed::are_there("nm", &["nm"]) {
        return;
    }
    let library = installed.prefix().join("lib/libringfold.so");
    let outcome = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library), DEADLINE);
    let exported = outcome.stdout.lines().filter_map(|line| line.split(' ').next_back());
    let exported: BTreeSet<_> = exported.map(str::to_owned).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 20, "{exported:?}");
}

#[test]
fn a_program_needs_the_soname() {
    let Some(installed) = Installed::get() else { return };
    if !needed::are_there("readelf", &["readelf"]) {
        return;
    }
    let program = installed.compile("operations");
    let outcome = run(Command::new("readelf").arg("-d").arg(program), DEADLINE);
    assert!(outcome.stdout.contains("[libringfold.so.0]"), "{outcome:?}");
}

#[test]
fn the_header_is_that_of_the_sources() {
    // The output of another version may differ.
    let right_version = "cbindgen --version | grep -q ' 0[.]29[.]'";
    if !needed::succeeds("cbindgen", &["sh", "-c", right_version]) {
        return;
    }
    let folder = Folder::new();
    let made = folder.path().join("ringfold.h");
    run(Command::new(format!("{SOURCES}/header")).arg(&made), DEADLINE);
    let text = fs::read_to_string(made).unwrap();
    let known = fs::read_to_string(format!("{SOURCES}/ringfold.h")).unwrap();
    assert!(text == known, "ringfold.h is not up to date; run crates/capi/header");
}

#[test]
fn the_header_suits_cplusplus() {
    if !needed::are_there("c++", &["c++"]) {
        return;
    }
    let header = Path::new(SOURCES).join("ringfold.h");
    let mut command = Command::new("c++");
    command.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]);
    run(command.arg(header), DEADLINE);
}
