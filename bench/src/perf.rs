//! A run of a perf tool, from the command line to the exit status.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringfold::{Collective, Communicator, Rank, Wire, limits::RANKS_MAX};

use crate::args::Args;
use crate::cases::Cases;
use crate::device::devices;
use crate::json::{Outcome, document};
use crate::ranks;
use crate::report;
use crate::run::{Row, Runner};
use crate::test::Test;

/// Runs the program: times and checks `test`. Returns 0 if every result is right, 1 after a
/// wrong result or a failure, and 2 for an invalid command line.
#[must_use]
pub fn perf_main(test: Test) -> ExitCode {
    if let Some(status) = ringfold_launcher::intercept() {
        return status;
    }
    let name = format!("{test}-perf").replace('_', "-");
    if let Some(status) = ringfold_launcher::generate(Args::command().name(name)) {
        return status;
    }
    let args = Args::parse();
    if let Some(reason) = args.refusal() {
        print_error(&format!("this flag of nccl-tests does not apply here: {reason}"));
        return ExitCode::from(2);
    }
    if let Err(what) = check(&args, test) {
        print_error(&what);
        return ExitCode::from(2);
    }
    let done = match args.ranks {
        Some(ranks) => start(ranks),
        None => rank_main(&args, test),
    };
    done.unwrap_or_else(|error| {
        print_error(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stderr, reason = "a command-line tool prints its errors")]
fn print_error(message: &str) {
    eprintln!("error: {message}");
}

/// Checks the command line as far as possible before the ranks connect.
fn check(args: &Args, test: Test) -> Result<(), String> {
    Cases::new(args, test, RANKS_MAX, Wire::default())?;
    if args.local_register == 2 && test != Test::Collective(Collective::AllReduce) {
        return Err(format!("-R 2: only allreduce works in windows, not {test}"));
    }
    match &args.output_file {
        Some(path) if path.extension().is_none_or(|extension| extension != "json") => {
            Err(format!("-J {}: the name must end in .json", path.display()))
        }
        _ => Ok(()),
    }
}

/// Starts ranks, and waits until all have ended.
fn start(ranks: usize) -> anyhow::Result<ExitCode> {
    let outcome = ranks::start(ranks)?;
    let last_line = outcome.to_string();
    if !last_line.is_empty() {
        print_error(&last_line);
    }
    Ok(ExitCode::from(outcome.exit_code()))
}

fn rank_main(args: &Args, test: Test) -> anyhow::Result<ExitCode> {
    let mut comm = Communicator::init()?;
    if args.timeout > 0 {
        comm.set_timeout(std::time::Duration::from_secs(args.timeout));
    }
    let is_first = comm.rank() == Rank(0);
    let cases = Cases::new(args, test, comm.size(), comm.wire());
    let cases = cases.map_err(anyhow::Error::msg)?;
    let devices = devices(&mut comm)?;
    // Only the first rank prints. The others write to a sink.
    let mut out: Box<dyn Write> =
        if is_first { Box::new(io::stdout()) } else { Box::new(io::sink()) };
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
            let halves = [row.out_of_place, row.in_place];
            wrong += halves.into_iter().filter_map(|half| half.wrong).sum::<u64>();
            rows.push(row.clone());
            Ok(())
        })?;
        cycle += 1;
    }

    let halves = || rows.iter().flat_map(|row| [row.out_of_place, row.in_place]);
    let average = halves().map(|half| half.busbw).sum::<f64>() / (2 * rows.len().max(1)) as f64;
    write!(out, "{}", report::foot(test, wrong, average))?;
    if let Some(path) = args.output_file.as_ref().filter(|_| is_first) {
        let command = std::env::args().collect();
        let (end, devices, rows) = (timestamp(), &devices[..], &rows[..]);
        let outcome = Outcome { start, end, command, devices, rows, wrong, average };
        let text = serde_json::to_string_pretty(&document(args, &outcome))?;
        std::fs::write(path, text + "\n").with_context(|| format!("-J {}", path.display()))?;
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
    let bar = progress_bar(cases.calls().count(), is_first);
    for call in cases.calls() {
        bar.set_message(call.to_string());
        let row = runner.row(&call)?;
        bar.suspend(|| show(&row))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Returns a progress bar, which is visible on a terminal only.
fn progress_bar(calls: usize, is_first: bool) -> ProgressBar {
    let bar = ProgressBar::new(calls as u64);
    if !is_first || !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Returns the time as `YYYY-MM-DD hh:mm:ss` in UTC.
fn timestamp() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}", second % 60)
}

/// Returns the Gregorian date of a day counted from 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(58), (1970, 2, 28));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_454), (2026, 1, 1));
    }
}
