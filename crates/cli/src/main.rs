//! The `ringfold` command: prints schedules, explains choices, and examines hosts and networks.

mod aggregate;
mod doctor;
mod explain;
mod gather;
mod inspect;
mod new_file;
mod plan;
mod precision;
mod prices;
mod probe;
mod records;
mod simulate;
mod top;
mod topo;
mod tune;
mod units;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ringfold_launcher::{Stream, failed, parsed};

/// The exit status of a command that failed before it had an answer.
const UNANSWERED: u8 = 2;

#[derive(Parser)]
#[command(
    name = "ringfold",
    version,
    about = "Show how ringfold runs collectives, and examine this host and its network",
    args_override_self = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print and prove the schedule of a collective, or list the algorithms for it
    Plan(plan::Args),
    /// Say which algorithm a call uses, and why: candidates, estimates, measurements
    Explain(explain::Args),
    /// Run the programs of all ranks in virtual time, over a fabric that need not exist: ringfold
    /// simulate allreduce --fabric rail:128x8:400G -b 64M
    Simulate(simulate::Args),
    /// Execute the sums of all algorithms between hosts, and compare their rounding errors
    Precision(precision::Args),
    /// Check and probe this host's network interfaces and RDMA devices, and say how to fix what is
    /// broken. As a job it probes between hosts: ringrun --host a,b ringfold doctor
    Doctor(doctor::Args),
    /// Describe this machine and its network, with certainty and evidence; or read another site's
    /// files: ringfold topo --from ibnetdiscover.txt
    Topo(topo::Args),
    /// Time all algorithms among the ranks of a job, for RINGFOLD_PLAN: ringrun -n 4 ringfold tune.
    /// With --machine, measure the prices of links instead, for RINGFOLD_PRICES
    Tune(tune::Args),
    /// Serve in-network reduction to jobs: combine the chunks of a group's members and return the
    /// results. With --stats, print the numbers of a running server
    Aggregate(aggregate::Args),
    /// Say in one sentence whether the jobs of this user on this host are healthy, compute, are
    /// slow or hang, and which rank the others wait for. Shows the calls and the traffic of
    /// all ranks, on a terminal again each second until q ends it. Exit status: 0, 10, 11 or 12
    Top(top::Args),
    /// Print the last events of all ranks of a job by time, before and after a failure, and the
    /// calls in which ranks differ
    Inspect(inspect::Args),
}

fn main() -> ExitCode {
    if let Some(status) = ringfold_launcher::generate(Cli::command()) {
        return status;
    }
    let cli = match parsed(Cli::try_parse()) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let printed = answer(&cli.command).and_then(|(text, status)| {
        Stream::Out.write_all(text.as_bytes())?;
        Ok(status)
    });
    match printed {
        Ok(status) => ExitCode::from(status),
        Err(error) => failed("ringfold", &*error, UNANSWERED),
    }
}

/// Returns the text to print, and the exit status.
fn answer(command: &Command) -> anyhow::Result<(String, u8)> {
    let (text, is_sound) = match command {
        Command::Plan(args) => {
            plan::answer(args, &mut Stream::Out).map(|is_sound| (String::new(), is_sound))
        }
        Command::Explain(args) => explain::answer(args).map(|text| (text, true)),
        Command::Simulate(args) => simulate::answer(args).map(|text| (text, true)),
        Command::Precision(args) => precision::answer(args).map(|text| (text, true)),
        Command::Doctor(args) => doctor::answer(args),
        Command::Topo(args) => topo::answer(args).map(|text| (text, true)),
        Command::Tune(args) => tune::answer(args).map(|text| (text, true)),
        Command::Aggregate(args) => aggregate::answer(args).map(|text| (text, true)),
        Command::Inspect(args) => inspect::answer(args).map(|text| (text, true)),
        Command::Top(args) => return top::answer(args),
    }?;
    Ok((text, u8::from(!is_sound)))
}
