//! Man pages and shell completions, made from the description of a command line.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell::{Bash, Fish, Zsh};

use crate::stream::failed;

/// Writes man pages and shell completions of `command`, if the process's arguments are
/// `--generate DIR`.
///
/// `main` calls it before it parses its arguments, and returns the status, if there is one.
/// Packagers install the files: a page for the program and each subcommand (`NAME.1`), and scripts
/// for bash, zsh and fish. Without these arguments it does nothing and returns `None`.
#[must_use = "main must return this status, if there is one"]
pub fn generate(command: Command) -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [option, dir] = args.as_slice() else { return None };
    if option != "--generate" {
        return None;
    }
    Some(match write(command, Path::new(dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("error: --generate {}", dir.display()), &error, 1),
    })
}

fn write(mut command: Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // The completions add the subcommand `help`, which needs no pages.
    clap_mangen::generate_to(command.clone(), dir)?;
    let name = command.get_name().to_owned();
    for shell in [Bash, Zsh, Fish] {
        clap_complete::generate_to(shell, &mut command, &name, dir)?;
    }
    Ok(())
}
