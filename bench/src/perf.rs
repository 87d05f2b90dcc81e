//! A run of a perf tool, from the command line to the exit status.

use std::io::{self, IsTerminal, LineWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Error, bail, ensure};
use ringfold::{Communicator, Config, Rank};
use ringfold_launcher::{Progress, Stream, failed, generate, intercept, parsed, started_as_rank};
use ringfold_types::Amount;

use crate::args::Args;
use crate::cases::Cases;
use crate::device::devices;
use crate::json::{Outcome, document};
use crate::output::OutputFile;
use crate::ranks;
use crate::report;
use crate::run::{Row, Runner};
use crate::test::Test;
use crate::timestamp::timestamp;

/// Runs the program: times and checks the operation that its name tells. Returns 0 if every result
/// is right, 1 after a wrong result or a failure, and 2 for an invalid command line or name.
#[must_use]
pub fn perf_main() -> ExitCode {
    if let Some(status) = intercept() {
        return status;
    }
    let name = std::env::args_os().next().unwrap_or_default();
    let test = match Test::of_program(Path::new(&name)) {
        Ok(test) => test,
        Err(error) => return failed("error", &*error, 2),
    };
    if let Some(status) = generate(Args::command_for(test)) {
        return status;
    }
    let args = match parsed(Args::try_parse_for(test)) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let output = match prepare(&args, test) {
        Ok(output) => output,
        Err(error) => return failed("error", &*error, 2),
    };
    let done = match args.ranks {
        Some(ranks) => start(ranks, test),
        None => rank_main(&args, test, output),
    };
    done.unwrap_or_else(|error| failed("error", &*error, 1))
}

/// Checks the command line as far as possible before ranks start or connect. Opens the file for the
/// results, unless this process is known to be another rank than the first.
fn prepare(args: &Args, test: Test) -> anyhow::Result<Option<OutputFile>> {
    if let Some(refusal) = args.refusal(test) {
        bail!("{refusal}");
    }
    check_memory(args, args.ranks.unwrap_or(1))?;
    let rows = Cases::check(args, test).map_err(Error::msg)?;
    let environment = Config::from_env()?.environment;
    let variable = |name: &str| environment.get(name).cloned();
    let launched = started_as_rank(&variable);
    if let (Some(_), Some(name)) = (args.ranks, launched) {
        bail!("--ranks starts ranks, but {name} says that this process is one already");
    }
    let rank = launched.and_then(|name| {
        // Other variables than that of the rank may reveal a launcher.
        variable(match name {
            "TORCHELASTIC_RUN_ID" | "WORLD_SIZE" => "RANK",
            "PMI_FD" => "PMI_RANK",
            name => name,
        })
    });
    if rank.is_some_and(|rank| rank != "0") {
        return Ok(None);
    }
    OutputFile::open(args, rows)
}

/// Checks that this host's memory has room for the buffers of `ranks` ranks.
fn check_memory(args: &Args, ranks: usize) -> anyhow::Result<()> {
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(u64::from(info.mem_unit));
    let needed = args.buffer_bytes().saturating_mul(ranks) as u64;
    let (most, gib) = (Amount(args.maxbytes), |bytes: u64| bytes as f64 / f64::from(1 << 30));
    ensure!(
        needed <= memory,
        "-e {most}: the buffers take {:.1} GiB for {ranks} ranks of this host, which has {:.1} GiB \
         of memory; give a smaller size",
        gib(needed),
        gib(memory)
    );
    Ok(())
}

/// Starts ranks, and waits until all have ended.
fn start(ranks: usize, test: Test) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::from(ranks::start(ranks, test.program())?.exit_code()))
}

fn rank_main(args: &Args, test: Test, output: Option<OutputFile>) -> anyhow::Result<ExitCode> {
    let mut comm = Communicator::init()?;
    if args.timeout > 0 {
        comm.set_timeout(Duration::from_secs(args.timeout as u64));
    }
    let is_first = comm.rank() == Rank(0);
    let cases = Cases::new(args, test, comm.size(), comm.wire()).map_err(Error::msg)?;
    let output = match output {
        None if is_first => OutputFile::open(args, cases.calls().count())?,
        output => output.filter(|_| is_first),
    };
    let layout = comm.layout();
    let here = (0..comm.size()).filter(|it| layout.same_host(comm.rank(), Rank::at(*it))).count();
    check_memory(args, here)?;
    let devices = devices(&mut comm)?;
    // Only the first rank prints. The others write to a sink.
    let mut out: Box<dyn Write> =
        if is_first { Box::new(LineWriter::new(Stream::Out)) } else { Box::new(io::sink()) };
    write!(out, "{}", report::head(args, test, &devices, args.maxbytes))?;
    let start = timestamp();

    let mut runner = Runner::new(&mut comm, args, test, cases.max_bytes())?;
    let mut rows = Vec::new();
    // `wrong` counts over all cycles; `rows` has the last cycle.
    let mut wrong = 0;
    let mut cycle = 0;
    while args.run_cycles == 0 || cycle < args.run_cycles {
        rows.clear();
        time_all(&mut runner, &cases, is_first, &mut |row| {
            writeln!(out, "{}", report::row(args, row))?;
            out.flush()?;
            let halves = [&row.out_of_place, &row.in_place];
            wrong += halves.into_iter().filter_map(|half| half.wrong).sum::<u64>();
            rows.push(row.clone());
            Ok(())
        })?;
        cycle += 1;
    }

    let halves = || rows.iter().flat_map(|row| [&row.out_of_place, &row.in_place]);
    let average = halves().map(|half| half.busbw).sum::<f64>() / (2 * rows.len().max(1)) as f64;
    write!(out, "{}", report::foot(test, wrong, average))?;
    out.flush()?;
    if let Some(output) = output {
        let command = std::env::args().collect();
        let (end, devices, rows) = (timestamp(), &devices[..], &rows[..]);
        let outcome = Outcome { start, end, command, devices, rows, wrong, average };
        let text = serde_json::to_string_pretty(&document(args, &outcome))?;
        output.write(&(text + "\n"))?;
    }
    comm.leave()?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn time_all(
    runner: &mut Runner<'_>,
    cases: &Cases,
    is_first: bool,
    show: &mut dyn FnMut(&Row) -> io::Result<()>,
) -> anyhow::Result<()> {
    for call in cases.calls() {
        runner.warm_up(&call)?;
    }
    let is_shown = is_first && io::stderr().is_terminal();
    let mut progress = Progress::new(is_shown);
    let count = cases.calls().count();
    for (index, call) in cases.calls().enumerate() {
        progress.show(|| format!("{} of {count}: {call}", index + 1));
        let row = runner.row(&call)?;
        progress.clear();
        show(&row)?;
    }
    Ok(())
}
