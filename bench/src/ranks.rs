//! Starts this program once per rank on this machine, as `ringrun` does.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use ringfold_launcher::{Job, Outcome, run};

/// Runs `ranks` ranks with this process's arguments, except `--ranks`. Blocks until all have ended.
/// The lines about the job on standard error begin with `name`.
pub(crate) fn start(ranks: usize, name: String) -> anyhow::Result<Outcome> {
    let mut words = std::env::args_os();
    let called = PathBuf::from(words.next().unwrap_or_default());
    // A program beside this one has the name of the operation, unless a link elsewhere has it.
    let own = std::env::current_exe().context("cannot find this program")?.with_file_name(&name);
    let mut job = Job::new(if own.exists() { own } else { called });
    job.name = name;
    job.args = without_ranks(words);
    job.ranks = Some(ranks);
    Ok(run(&job)?)
}

fn without_ranks(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if text == "--ranks" {
            args.next();
        } else if !text.starts_with("--ranks=") {
            kept.push(arg);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_do_not_start_ranks() {
        let kept = |line: &str| {
            let kept = without_ranks(line.split(' ').map(OsString::from));
            kept.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(kept("-b 8 --ranks 4 -e 64"), "-b 8 -e 64");
        assert_eq!(kept("--ranks=4 -n 2"), "-n 2");
    }
}
