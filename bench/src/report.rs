//! The table, with the columns of nccl-tests.

use std::fmt::Write as _;

use ringfold::Collective;

use crate::args::Args;
use crate::cases::{op_name, root_text, type_name};
use crate::device::Device;
use crate::run::{Half, Iterations, Row};
use crate::test::Test;

/// Returns the lines before the first row.
pub(crate) fn head(args: &Args, test: Test, devices: &[Device], max_bytes: usize) -> String {
    let mut text = String::new();
    let by_factor = args.stepfactor > 1;
    let (step, unit) =
        if by_factor { (args.stepfactor, "factor") } else { (args.stepbytes, "bytes") };
    // Writing to a string does not fail.
    let mut line = |line: String| text.push_str(&(line + "\n"));
    line(format!("# ringfold-bench version {}", env!("CARGO_PKG_VERSION")));
    line(format!("# Collective test starting: {}", program(test)));
    line(format!(
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {step}({unit}) warmup iters: {} \
         iters: {} agg iters: {} validation: {} graph: 0 unalign: {}",
        args.minbytes,
        max_bytes,
        args.warmup_iters,
        args.iters,
        args.agg_iters,
        args.check,
        args.unalign
    ));
    match args.blocking {
        1 => line("# Blocking Enabled: barrier after each iteration (-n) ".to_owned()),
        3 => line(
            "# Blocking Enabled: barrier after each iteration (-n); time excludes barrier "
                .to_owned(),
        ),
        _ => {}
    }
    if args.per_iter_timing == 1 {
        let skipped = match args.per_iter_skip {
            0 => String::new(),
            skipped => format!("; summary skips first {skipped} iterations"),
        };
        line(format!("# Per-Iteration Report: wall time of the slowest rank{skipped} "));
    }
    line("#".to_owned());
    line("# Using devices".to_owned());
    for (rank, Device { pid, host, local }) in devices.iter().enumerate() {
        line(format!(
            "#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device {local:2} [0000:00:00] CPU"
        ));
    }
    line("#".to_owned());
    let extra = extra_head(args);
    let halves = match args.per_iter_timing {
        0 => format!("         out-of-place{:23}in-place          ", ""),
        _ => {
            format!("            out-of-place (+ per-iteration){:32}in-place (+ per-iteration)", "")
        }
    };
    line(format!("# {:10}  {:>12}  {:>8}  {:>6}  {:>6}  {halves}{}", "", "", "", "", "", extra[0]));
    let heads = [(HEAD, ITERATION_HEAD, &extra[1]), (UNITS, ITERATION_UNITS, &extra[2])];
    for (names, iterations, extra) in heads {
        let [a, b, c, d, e, f, g, h, i] = names;
        let mut half = format!("  {f:>7}  {g:>6}  {h:>6}  {i:>6}");
        if args.per_iter_timing == 1 {
            half.extend(iterations.map(|name| format!("  {name:>7}")));
        }
        line(format!("# {a:>10}  {b:>12}  {c:>8}  {d:>6}  {e:>6}{half}{half} {extra}"));
    }
    if args.report_cputime == 1 { text.replace("   time", "cputime") } else { text }
}

const HEAD: [&str; 9] =
    ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"];
const UNITS: [&str; 9] = ["(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""];

/// The headings of the columns of single iterations, and their units.
const ITERATION_HEAD: [&str; 4] = ["i_min", "i_max", "i_p99", "i_cv%"];
const ITERATION_UNITS: [&str; 4] = ["(us)", "(us)", "(us)", "(%)"];

/// Returns the headings of the columns after both halves, as requested: the time of day, and
/// ringfold's own columns for latencies out of place and in place, and for the algorithm.
fn extra_head(args: &Args) -> [String; 3] {
    let mut head = [const { String::new() }; 3];
    if args.report_timestamps == 1 {
        head[1] += &format!("{:>19}", "timestamp");
        head[2] += &format!("{:>19}", "%Y-%m-%d %H:%M:%S");
    }
    if args.latency {
        head[0] += "    out-of-place          in-place    ";
        head[1] += "     p50      p99      p50      p99 ";
        head[2] += "    (us)     (us)     (us)     (us) ";
    }
    if args.overlap {
        head[0] += "  started, out-of-place     ";
        head[1] += "   alone  compute  overlap ";
        head[2] += "    (us)     (us)      (%) ";
    }
    if args.profile {
        head[0] += "      profile, out-of-place (means of ranks)           ";
        head[1] += " waiting    least  of rank   moving  combine  expected ";
        head[2] += "    (us)     (us)               (us)     (us)      (us) ";
    }
    if args.algo {
        head[1] += "           algorithm ";
    }
    head
}

/// Formats a row.
pub(crate) fn row(args: &Args, row: &Row) -> String {
    let call = &row.call;
    let mut text = format!(
        "{:12}  {:12}  {:>8}  {:>6}  {:>6}",
        row.bytes,
        call.count,
        type_name(call.data_type),
        op_name(call),
        root_text(row.test, call)
    );
    let halves = [&row.out_of_place, &row.in_place];
    for Half { time_us, algbw, busbw, wrong, iterations, .. } in halves {
        let numbers = [number(*time_us, 7), number(*algbw, 6), number(*busbw, 6)].join("  ");
        let wrong = wrong.map_or_else(|| "   N/A".to_owned(), |wrong| format!("{wrong:6}"));
        text += &format!("  {numbers}  {wrong}");
        if let Some(Iterations { spread, .. }) = iterations {
            let columns = [spread.min, spread.max, spread.p99, spread.variation()];
            text.extend(columns.map(|value| format!("  {}", number(value, 7))));
        }
    }
    if args.report_timestamps == 1 {
        text += &format!("{:>21}", row.end);
    }
    for (p50, p99) in halves.iter().filter_map(|half| half.latency_us) {
        text += &format!("  {}  {}", number(p50, 7), number(p99, 7));
    }
    if let Some(overlap) = row.overlap {
        let columns = [overlap.alone_us, overlap.computing_us, overlap.percent()];
        text.extend(columns.map(|value| format!("  {}", number(value, 7))));
    }
    if let Some(parts) = &row.parts {
        let ([waiting, moving, combining], (least, rank)) = (parts.means(), parts.least_waiting());
        let [waiting, least, moving, combining] =
            [waiting, least, moving, combining].map(|value| number(value, 7));
        let expected = parts.expected.map_or_else(|| "-".to_owned(), |it| number(it, 8));
        text += &format!("  {waiting}  {least}  {rank:>7}  {moving}  {combining}  {expected:>8}");
    }
    if args.algo {
        text += &format!("  {:>18}", row.algorithm);
    }
    text
}

/// Returns the lines after the last row.
pub(crate) fn foot(test: Test, wrong: u64, average: f64) -> String {
    let verdict = if wrong == 0 { "OK" } else { "FAILED" };
    let mut text = String::new();
    let _ = writeln!(text, "# {:<20} : {wrong} {verdict}", "Out of bounds values");
    let _ = writeln!(text, "# {:<20} : {} ", "Avg bus bandwidth", general(average));
    let _ = writeln!(text, "#");
    let _ = writeln!(text, "# Collective test concluded: {}", program(test));
    text
}

/// Returns nccl-tests' name of the program.
pub(crate) fn program(test: Test) -> String {
    let name = match test {
        Test::Collective(Collective::AllReduce) => "all_reduce".to_owned(),
        Test::Collective(Collective::AllGather) => "all_gather".to_owned(),
        other => other.to_string(),
    };
    format!("{name}_perf")
}

/// Formats a number to fit `width`: with two, one or no decimals, or else with a power of ten.
fn number(value: f64, width: usize) -> String {
    let precise = [2, 1, 0].map(|decimals| format!("{value:width$.decimals$}"));
    let found = precise.into_iter().find(|text| text.len() <= width);
    found.unwrap_or_else(|| {
        let decimals = usize::from(width >= 7);
        let text = format!("{value:.decimals$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        format!("{:>width$}", format!("{digits}e{exponent:+03}"))
    })
}

/// Formats a number with six significant digits, as C's `%g` does.
#[expect(clippy::cast_possible_truncation, reason = "a decimal exponent")]
fn general(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits_before = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&digits_before) {
        let text = format!("{value:.5e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        return format!("{}e{exponent:+03}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let decimals = usize::try_from(5 - digits_before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        assert_eq!(number(156.81, 7), " 156.81");
        assert_eq!(number(12_345.678, 7), "12345.7");
        assert_eq!(number(1_234_567.0, 7), "1234567");
        assert_eq!(number(123_456_789.0, 7), "1.2e+08");
        assert_eq!(number(53.5, 6), " 53.50");
        assert_eq!(number(12_345_678.0, 6), " 1e+07");
        assert_eq!(general(94.16), "94.16");
        assert_eq!(general(1_234_567.0), "1.23457e+06");
        assert_eq!(general(0.0), "0");
    }
}
