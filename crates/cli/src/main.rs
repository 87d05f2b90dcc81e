//! `ringfold`: questions about ringfold that need no job to answer them.

mod amount;
mod plan;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The question could not be answered.
const UNANSWERED: u8 = 2;

#[derive(Parser)]
#[command(name = "ringfold", version, about = "Questions about ringfold that need no job")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the schedule of a collective and prove it, or list the algorithms there are for it
    Plan(plan::Args),
}

fn main() -> ExitCode {
    let Command::Plan(args) = Cli::parse().command;
    match plan::answer(&args) {
        Ok(answer) => {
            // Whoever closed our standard output, as `head` does, has seen enough.
            std::io::stdout().write_all(answer.text.as_bytes()).unwrap_or_default();
            if answer.is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            writeln!(std::io::stderr(), "ringfold: {error:#}").unwrap_or_default();
            ExitCode::from(UNANSWERED)
        }
    }
}
