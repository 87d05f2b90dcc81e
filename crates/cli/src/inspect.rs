//! `ringfold inspect`: the last events of all ranks of a job, merged by time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ringfold_bootstrap::{Logged, RecordedCall, RecordedGroup};

use crate::records::{Job, Process, complete, copies, described, jobs};

/// Calls before and after the first one that differs.
const AROUND: u64 = 4;

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The number or the name of a job of this user on this host, the number of one of its
    /// processes, or a folder to which a failure copied records (RINGFOLD_DUMP)
    #[arg(value_name = "JOB|PID|DIR")]
    of: String,
    /// The number of calls of each rank in each group, at most 64
    #[arg(long, value_name = "CALLS", default_value_t = 8)]
    last: usize,
}

/// Returns the failures of a job, the calls that differ between ranks, and the last events.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let folder = Path::new(&args.of);
    let mut text = String::new();
    let jobs = if folder.is_dir() {
        if let Err(error) = complete(folder) {
            writeln!(text, "no copies of ended ranks of this host: {}: {error}", folder.display())?;
        }
        copies(folder)?
    } else {
        jobs(Some(&args.of))?
    };
    for job in &jobs {
        writeln!(text, "{}", job.title())?;
        for (cause, ranks) in failures(job) {
            writeln!(text, "failure on {}: {cause}", named(&ranks))?;
        }
        text += &differences(job);
        text += &events(job, args.last);
    }
    Ok(text)
}

/// Each cause of a failure, with the ranks that know it.
fn failures(job: &Job) -> BTreeMap<&str, Vec<u64>> {
    let mut causes = BTreeMap::<_, Vec<u64>>::new();
    for Process { record, .. } in &job.processes {
        for failure in &record.failures {
            causes.entry(&*failure.text).or_default().push(record.rank);
        }
    }
    causes
}

fn named(ranks: &[u64]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let ranks: Vec<_> = ranks.iter().map(u64::to_string).collect();
    format!("{word} {}", ranks.join(" "))
}

/// The calls of two ranks side by side, in each group whose ranks called different operations.
fn differences(job: &Job) -> String {
    let mut text = String::new();
    let all = job.processes.iter().flat_map(|it| &it.record.groups);
    let mut groups = BTreeMap::<[u64; 2], Vec<&RecordedGroup>>::new();
    all.for_each(|group| groups.entry(group.id).or_default().push(group));
    for members in groups.values() {
        let Some((seq, first, second)) = difference(members) else { continue };
        let _ = writeln!(text, "\nthe ranks of {:?} differ from call #{seq} on", first.name);
        let heads = [first, second].map(|it| format!("rank {}", it.rank));
        let _ = writeln!(text, "{:>8}   {:<36} {}", "call", heads[0], heads[1]);
        for seq in seq.saturating_sub(AROUND)..=seq.saturating_add(AROUND) {
            let sides = [first, second].map(|it| call_of(it, seq));
            if sides == [None, None] {
                continue;
            }
            let [left, right] = sides.map(|it| it.map_or_else(|| "-".to_owned(), name));
            let mark = if left == right { ' ' } else { '*' };
            let _ = writeln!(text, "{:>8} {mark} {left:<36} {right}", format!("#{seq}"));
        }
    }
    text
}

/// The first call in which two members of a group differ.
fn difference<'a>(
    members: &[&'a RecordedGroup],
) -> Option<(u64, &'a RecordedGroup, &'a RecordedGroup)> {
    let (first, others) = members.split_first()?;
    let differing = |other: &&'a RecordedGroup| {
        let calls = first.calls.iter();
        let differs = |call: &&RecordedCall| {
            call_of(other, call.seq).is_some_and(|it| kinds(it) != kinds(call))
        };
        calls.clone().find(differs).map(|call| (call.seq, *first, *other))
    };
    others.iter().filter_map(differing).min_by_key(|(seq, ..)| *seq)
}

/// Everything of a call that is the same on all ranks: collective, type and operation.
const fn kinds(call: &RecordedCall) -> u64 {
    call.words[0]
}

fn call_of(group: &RecordedGroup, seq: u64) -> Option<&RecordedCall> {
    group.calls.iter().find(|call| call.seq == seq)
}

fn name(call: &RecordedCall) -> String {
    Logged::from(call).text()
}

/// The events of all ranks by time, in seconds before the last one.
fn events(job: &Job, last: usize) -> String {
    let mut events = Vec::new();
    for Process { record, now, .. } in &job.processes {
        let mut add = |stamp, text| events.push((record.time_of(stamp, *now), record.rank, text));
        for event in &record.links {
            add(event.at, event.text.clone());
        }
        for event in &record.failures {
            add(event.at, format!("failure: {}", event.text));
        }
        for group in &record.groups {
            for call in &group.calls[group.calls.len().saturating_sub(last)..] {
                let (text, _, algorithm) = described(call);
                let way = algorithm.map_or_else(String::new, |it| format!(" by {it}"));
                let seq = call.seq;
                let open = if call.is_finished { "" } else { ", which has not ended" };
                add(call.begin, format!("begins #{seq} {text}{way}{open}"));
                if let Some(end) = call.end.filter(|_| call.is_finished) {
                    add(end, format!("ends #{seq}"));
                }
            }
        }
    }
    events.sort();
    let end = events.last().map_or(0, |(at, ..)| *at);
    let mut text = format!("\n{:>14} {:>6}  event\n", "seconds", "rank");
    for (at, rank, event) in events {
        let before = end - at;
        let (whole, micros) = (before / 1_000_000_000, before / 1000 % 1_000_000);
        let _ = writeln!(text, "{:>14} {rank:>6}  {event}", format!("-{whole}.{micros:06}"));
    }
    text
}
