//! `ringfold`: answers about ringfold: how it would do things, and what is best here.

mod amount;
mod doctor;
mod explain;
mod plan;
mod rounds;
mod share;
mod topo;
mod tune;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The question could not be answered.
const UNANSWERED: u8 = 2;

#[derive(Parser)]
#[command(
    name = "ringfold",
    version,
    about = "How ringfold would do things, and what is best here"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the schedule of a collective and prove it, or list the algorithms there are for it
    Plan(plan::Args),
    /// Say which algorithm a call would run by, and why: candidates, estimates, measurements
    Explain(explain::Args),
    /// Look at this host's network interfaces and RDMA devices, try those out, and say what is
    /// wrong and what to do about it; as a job, between hosts: ringrun --host a,b ringfold doctor
    Doctor(doctor::Args),
    /// Say what this machine and its network look like, how sure that is, and why; or read another
    /// site's files: ringfold topo --from ibnetdiscover.txt
    Topo(topo::Args),
    /// Measure all algorithms for RINGFOLD_PLAN, among ranks: ringrun -n 4 ringfold tune
    Tune(tune::Args),
}

fn main() -> ExitCode {
    let (text, is_sound) = match answer(&Cli::parse().command) {
        Ok(answer) => answer,
        Err(error) => {
            writeln!(std::io::stderr(), "ringfold: {error:#}").unwrap_or_default();
            return ExitCode::from(UNANSWERED);
        }
    };
    // Whoever closed our standard output, as `head` does, has seen enough.
    std::io::stdout().write_all(text.as_bytes()).unwrap_or_default();
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What to print, and whether nothing of it is known to be wrong.
fn answer(command: &Command) -> anyhow::Result<(String, bool)> {
    match command {
        Command::Plan(args) => plan::answer(args).map(|answer| (answer.text, answer.is_sound)),
        Command::Explain(args) => explain::answer(args).map(|text| (text, true)),
        Command::Doctor(args) => doctor::answer(args),
        Command::Topo(args) => topo::answer(args).map(|text| (text, true)),
        Command::Tune(args) => tune::answer(args).map(|text| (text, true)),
    }
}
