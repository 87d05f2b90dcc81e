//! The answer as a table, and for one call what held it up.

use std::fmt::Write;

use ringfold_sim::Outcome;
use ringfold_topology::Level;
use ringfold_types::Amount;

use super::answer::Answer;
use super::cell::{Size, bandwidths};
use crate::units;

/// Links that are named.
const LINKS: usize = 8;

pub(super) fn answer(answer: &Answer) -> anyhow::Result<String> {
    let Answer { question, sizes } = answer;
    let mut text = String::new();
    let ranks = question.job.layout.size();
    let first = sizes.first().map(|size| size.call.to_string()).unwrap_or_default();
    let what = match &sizes[..] {
        [_] => first,
        _ => question.collective.to_string(),
    };
    writeln!(text, "{what} on {}", answer.title())?;
    writeln!(
        text,
        "{:>9}   {:<20} {:>10} {:>10} {:>10} {:>6}",
        "bytes", "algorithm", "time", "algbw", "busbw", "idle"
    )?;
    let mut is_coarse = false;
    for Size { call, bytes, chosen, cells } in sizes {
        for cell in cells {
            let mark = if cell.algorithm == *chosen { '*' } else { ' ' };
            write!(text, "{:>9} {mark} {:<20} ", Amount(*bytes).to_string(), cell.algorithm)?;
            match &cell.outcome {
                Ok(Outcome { time_ps, idle, chunks, rounds, .. }) => {
                    let [alone, bus] = bandwidths(call, *bytes, ranks, *time_ps);
                    let (time, idle) = (units::time(*time_ps), idle * 100.0);
                    write!(text, "{time:>10} {alone:>10.3} {bus:>10.3} {idle:>4.0} %")?;
                    for (what, times) in [("chunks", chunks), ("rounds", rounds)] {
                        if *times > 1 {
                            is_coarse = true;
                            write!(text, "  {what} x{times}")?;
                        }
                    }
                    writeln!(text)?;
                }
                Err(operations) => writeln!(text, "{:>10} {operations} operations", "too long:")?,
            }
        }
    }
    writeln!(
        text,
        "* is ringfold's choice; GB/s; idle is the part of the time of the ranks' CPUs"
    )?;
    if is_coarse {
        text +=
            "chunks x4: simulated with chunks of 4 times the length; rounds x4: 4 rounds in one\n";
    }
    if let [Size { cells, .. }] = &sizes[..]
        && let [cell] = &cells[..]
        && let Ok(outcome) = &cell.outcome
    {
        text += &details(outcome, ranks)?;
    }
    Ok(text)
}

/// The bytes by level, and the links that were full longest.
fn details(outcome: &Outcome, ranks: usize) -> anyhow::Result<String> {
    let mut text = String::from("\nbytes of messages\n");
    for (level, bytes) in Level::ALL.into_iter().zip(outcome.levels) {
        let within = match level {
            Level::Host => "within hosts",
            Level::Group => "within leaf groups",
            Level::Pod => "across spines",
            Level::Fabric => "across pods",
        };
        writeln!(text, "  {within:<20} {:>12}", Amount(bytes).to_string())?;
    }
    writeln!(text, "links that were full longest")?;
    writeln!(text, "  {:<40} {:>10} {:>6} {:>12}", "link", "full", "used", "bytes")?;
    for link in outcome.links.iter().take(LINKS) {
        let (name, used) = (&link.name, link.used * 100.0);
        let (full, bytes) = (
            units::time(link.full_ps),
            Amount(usize::try_from(link.bytes).unwrap_or(usize::MAX)).to_string(),
        );
        writeln!(text, "  {name:<40} {full:>10} {used:>4.0} % {bytes:>12}")?;
    }
    let Outcome { events, standing, ref links, .. } = *outcome;
    writeln!(text, "{} links carried bytes; {events} events", links.len())?;
    if standing < ranks {
        writeln!(text, "{standing} of {ranks} ranks stood for all, with the same result")?;
    }
    Ok(text)
}
