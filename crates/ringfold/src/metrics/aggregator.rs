//! The numbers of an aggregator as text in the format OpenMetrics 1.0.

use std::fmt::{self, Write as _};

use ringfold_innetwork::trees::{GroupStats, Stats};
use ringfold_types::Way;

use super::text::{Escaped, FAILOVERS, Family, SENT, Seconds, by_way, head};

const GROUPS: Family = ("ringfold_groups", "gauge", "", "Groups that exist at the aggregator.");
const MEMORY: Family =
    ("ringfold_memory_bytes", "gauge", "bytes", "Bytes of the pool that groups may use.");
const REDUCTIONS: Family =
    ("ringfold_reductions", "counter", "", "Chunks whose parts have been combined.");
const RECEIVED: Family =
    ("ringfold_received_bytes", "counter", "bytes", "Bytes that children have handed over.");
const WAITED: Family = (
    super::text::WAITED.0,
    "counter",
    "seconds",
    "Time for which chunks that had begun waited for children or for the parent.",
);

/// A counter of a group.
type Count = fn(&GroupStats) -> String;

/// The text of the aggregator at this address, with the words that count its traffic.
pub(super) fn text(at: &str, traffic: &[u64], stats: &Stats) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, at, traffic, stats);
    text
}

fn write(out: &mut String, at: &str, traffic: &[u64], stats: &Stats) -> fmt::Result {
    let own = format!("aggregator=\"{}\"", Escaped(at));
    let (sent, lost) = traffic.split_at(Way::COUNT.min(traffic.len()));
    for (family, counts) in [(SENT, sent), (FAILOVERS, lost)] {
        head(out, family)?;
        by_way(out, family, &own, sent.iter().copied().zip(counts.iter().copied()))?;
    }
    for (family, value) in [(GROUPS, stats.groups.len() as u64), (MEMORY, stats.memory.1)] {
        head(out, family)?;
        writeln!(out, "{}{{{own}}} {value}", family.0)?;
    }
    let counts: [(Family, Count); 3] = [
        (REDUCTIONS, |group| group.chunks.to_string()),
        (RECEIVED, |group| group.bytes.to_string()),
        (WAITED, |group| Seconds(group.waited).to_string()),
    ];
    for (family, count) in counts {
        head(out, family)?;
        for group in &stats.groups {
            let (job, number) = (Escaped(&group.job), group.group);
            let labels = format!("{own},job_name=\"{job}\",group=\"{number}\"");
            writeln!(out, "{}_total{{{labels}}} {}", family.0, count(group))?;
        }
    }
    writeln!(out, "# EOF")
}
