//! The commands of `ringfold`, as their users give them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its seed"
)]

mod doctor;
mod measure;
mod plan;
mod precision;
mod simulate;
mod topo;
mod tune;

use std::process::Command;

use ringfold_harness::Outcome;

/// The output of a command that succeeds and has nothing to say on standard error.
fn printed(arguments: &[&str]) -> String {
    let done = ringfold(arguments);
    assert!(done.stderr.is_empty(), "{arguments:?}: {done:?}");
    done.printed()
}

/// The error of a command with wrong input, which prints nothing else.
fn refused(arguments: &[&str]) -> String {
    let done = ringfold(arguments);
    assert_eq!((done.code(), &*done.stdout), (2, ""), "{arguments:?}: {done:?}");
    done.stderr
}

fn ringfold(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfold"));
    Outcome::of(command.args(arguments).env_remove("RINGFOLD_TOPO_FILE"))
}

/// Checks that each command of a page is followed by the text that it prints. Returns their number.
fn tables_of(page: &str, command: &str) -> usize {
    let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
    let start = format!("sh\nringfold {command} ");
    let commands = blocks.iter().enumerate();
    let commands =
        commands.filter_map(|(at, block)| Some((at, block.strip_prefix(&start)?.trim_end())));
    let mut tables = 0;
    for (at, arguments) in commands {
        let words: Vec<&str> = [command].into_iter().chain(arguments.split_whitespace()).collect();
        let printed = printed(&words);
        let is_there =
            blocks.get(at + 1).is_some_and(|table| table[..] == format!("text\n{printed}"));
        assert!(is_there, "put into {page}, below its command: {arguments}\n{printed}");
        tables += 1;
    }
    tables
}
