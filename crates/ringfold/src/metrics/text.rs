//! Counters as text in the format OpenMetrics 1.0.

use std::fmt::{self, Write as _};

use ringfold_bootstrap::{CallKind, CountedCalls, Counters};
use ringfold_collectives::Algorithm;
use ringfold_types::{Collective, UnevenCollective, Way};

/// The type of the text for HTTP.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The counted durations in seconds, as OpenMetrics writes numbers.
const LIMITS: [&str; CountedCalls::LIMITS.len()] = [
    "1e-06",
    "4e-06",
    "1.6e-05",
    "6.4e-05",
    "0.000256",
    "0.001024",
    "0.004096",
    "0.016384",
    "0.065536",
    "0.262144",
    "1.048576",
    "4.194304",
    "16.777216",
    "67.108864",
];

/// A family of metrics: its name, its type, its unit, and its meaning.
pub(super) type Family = (&'static str, &'static str, &'static str, &'static str);

const DURATIONS: Family = (
    "ringfold_call_duration_seconds",
    "histogram",
    "seconds",
    "Collective calls by duration. Short calls that do not wait count as the shortest.",
);
pub(super) const SENT: Family =
    ("ringfold_sent_bytes", "counter", "bytes", "Bytes of messages that the process has sent.");
pub(super) const WAITED: Family =
    ("ringfold_wait_seconds", "counter", "seconds", "Time for which calls waited for peers.");
pub(super) const FAILOVERS: Family = (
    "ringfold_failovers",
    "counter",
    "",
    "Ways to peers that were lost while others carried their bytes on.",
);

/// The text of these processes.
pub(super) fn text(processes: &[Counters]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, processes);
    text
}

fn write(out: &mut String, processes: &[Counters]) -> fmt::Result {
    let labels: Vec<String> = processes.iter().map(labels_of).collect();
    let all = || processes.iter().zip(&labels);
    head(out, DURATIONS)?;
    for (process, labels) in all() {
        process.calls.iter().try_for_each(|calls| histogram(out, labels, calls))?;
    }
    for (family, index) in [(SENT, 0), (FAILOVERS, 1)] {
        head(out, family)?;
        for (process, labels) in all() {
            let counts = process.traffic.iter().map(|it| (it[0], it[index]));
            by_way(out, family, labels, counts)?;
        }
    }
    head(out, WAITED)?;
    for (process, labels) in all() {
        writeln!(out, "{}_total{{{labels}}} {}", WAITED.0, Seconds(process.waited))?;
    }
    writeln!(out, "# EOF")
}

/// Samples of a family by transport and rail. `counts` has for each way its bytes, and its count.
pub(super) fn by_way(
    out: &mut String,
    (name, ..): Family,
    labels: &str,
    counts: impl Iterator<Item = (u64, u64)>,
) -> fmt::Result {
    // A way that was never used is none of this process.
    for (way, (_, count)) in Way::all().zip(counts).filter(|(_, (bytes, _))| *bytes > 0) {
        write!(out, "{name}_total{{{labels},transport=\"{}\"", way.transport())?;
        way.rail().map_or(Ok(()), |rail| write!(out, ",rail=\"{rail}\""))?;
        writeln!(out, "}} {count}")?;
    }
    Ok(())
}

pub(super) fn head(out: &mut String, (name, kind, unit, meaning): Family) -> fmt::Result {
    writeln!(out, "# TYPE {name} {kind}")?;
    if !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    writeln!(out, "# HELP {name} {meaning}")
}

/// The labels of a process: its job and its rank.
fn labels_of(process: &Counters) -> String {
    let (number, name) = (&format!("{:016x}", process.job[0])[..8], Escaped(&process.name));
    format!("job_id=\"{number}\",job_name=\"{name}\",rank=\"{}\"", process.rank)
}

fn histogram(out: &mut String, process: &str, calls: &CountedCalls) -> fmt::Result {
    let (collective, size, algorithm) = calls.kind.map_or(("other", "any", "any"), names);
    let name = DURATIONS.0;
    let labels =
        format!("{process},collective=\"{collective}\",size=\"{size}\",algorithm=\"{algorithm}\"");
    let mut count = calls.untimed;
    for (index, calls) in calls.durations.iter().enumerate() {
        count = count.saturating_add(*calls);
        let limit = LIMITS.get(index).unwrap_or(&"+Inf");
        writeln!(out, "{name}_bucket{{{labels},le=\"{limit}\"}} {count}")?;
    }
    writeln!(out, "{name}_count{{{labels}}} {count}")?;
    writeln!(out, "{name}_sum{{{labels}}} {}", Seconds(calls.nanoseconds))
}

/// The collective, the size class and the algorithm of calls.
fn names(kind: CallKind) -> (&'static str, &'static str, &'static str) {
    let even = Collective::from_code(kind.collective);
    let algorithms = even.map(Algorithm::of);
    let algorithm = algorithms.and_then(|all| all.get(usize::from(kind.algorithm)));
    let uneven = || UnevenCollective::ALL.into_iter().find(|it| *it as u8 == kind.collective);
    let collective = even.map(Collective::name).or_else(|| uneven().map(UnevenCollective::name));
    (collective.unwrap_or("unknown"), kind.size(), algorithm.map_or("any", |it| it.name))
}

/// Nanoseconds as seconds.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The value of a label.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_counters() {
        for (text, nanoseconds) in LIMITS.iter().zip(CountedCalls::LIMITS) {
            let seconds: f64 = text.parse().unwrap();
            #[expect(clippy::cast_precision_loss, reason = "the limits are small")]
            let wanted = nanoseconds as f64 / 1e9;
            assert!((seconds - wanted).abs() < wanted * 1e-12, "{text} {nanoseconds}");
        }
    }

    #[test]
    fn the_text_has_all_counters_and_an_end() {
        let mut durations = [0; CountedCalls::LIMITS.len() + 1];
        (durations[1], durations[14]) = (3, 1);
        let calls = CountedCalls { kind: None, untimed: 2, nanoseconds: 1_000_000_007, durations };
        let mut traffic = vec![[0; 2]; Way::COUNT];
        traffic[Way::Rdma(1).index()] = [77, 5];
        let process = Counters {
            pid: 1,
            begun: 2,
            job: [0x0123_4567_89ab_cdef, 4],
            name: "a \"job\"\\".to_owned(),
            rank: 3,
            size: 4,
            waited: 2_500_000_000,
            traffic,
            calls: vec![calls],
        };
        let text = text(&[process]);
        let own = "job_id=\"01234567\",job_name=\"a \\\"job\\\"\\\\\",rank=\"3\"";
        let kind = "collective=\"other\",size=\"any\",algorithm=\"any\"";
        for line in [
            format!("ringfold_call_duration_seconds_bucket{{{own},{kind},le=\"1e-06\"}} 2"),
            format!("ringfold_call_duration_seconds_bucket{{{own},{kind},le=\"4e-06\"}} 5"),
            format!("ringfold_call_duration_seconds_bucket{{{own},{kind},le=\"+Inf\"}} 6"),
            format!("ringfold_call_duration_seconds_sum{{{own},{kind}}} 1.000000007"),
            format!("ringfold_sent_bytes_total{{{own},transport=\"rdma\",rail=\"1\"}} 77"),
            format!("ringfold_failovers_total{{{own},transport=\"rdma\",rail=\"1\"}} 5"),
            format!("ringfold_wait_seconds_total{{{own}}} 2.500000000"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("shm"), "{text}");
    }
}
