//! The members of each group, from two looks at the records of a job.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfold_bootstrap::{Record, RecordedCall, RecordedGroup};

use super::traffic::{Sent, sent, waited};
use super::verdict::{Awaited, Member};
use crate::records::{Host, Job, Process, State, described, described_message, operation};

/// A group, with the members on this host.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) id: [u64; 2],
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) members: Vec<Member>,
    /// For each member its latest call.
    pub(crate) rows: Vec<Row>,
}

/// A call of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) text: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) algorithm: Option<&'static str>,
    /// The time for which the calls of the process have waited.
    pub(crate) waited: Duration,
    /// The traffic of the process.
    pub(crate) sent: Vec<Sent>,
}

/// The groups of a job of which a living process is a member, oldest first. `earlier` is the first
/// look at the job.
pub(crate) fn groups(earlier: Option<&Job>, job: &Job) -> Vec<Group> {
    let mut groups = BTreeMap::<[u64; 2], Group>::new();
    let mut alive = Vec::new();
    // All ranks begin to join before one has joined. So a dead one whose last event was earlier
    // than that is of an earlier job with the same name. Hosts may have different times.
    let begun = |it: &Process| {
        let joined = it.record.groups.iter().filter(|group| !group.is_left);
        joined.map(|group| since(it, group.joined)).max()
    };
    let living = job.processes.iter().filter(|it| it.state != Some(State::Gone));
    let oldest = living.filter_map(begun).max().unwrap_or(Duration::MAX);
    let is_earlier =
        |it: &&Process| it.state == Some(State::Gone) && since(it, it.record.last_stamp()) > oldest;
    let hosts = Hosts::of(job);
    let mut processes: Vec<_> = job.processes.iter().filter(|it| !is_earlier(it)).collect();
    processes.sort_by_key(|it| it.record.rank);
    for process in processes {
        let before = earlier.and_then(|job| job.processes.iter().find(|it| it.is(process)));
        for group in process.record.groups.iter().filter(|it| !it.is_left) {
            if process.state != Some(State::Gone) {
                alive.push(group.id);
            }
            let known = groups.entry(group.id).or_insert_with(|| Group {
                id: group.id,
                name: group.name.clone(),
                size: group.size,
                members: Vec::new(),
                rows: Vec::new(),
            });
            let host = hosts.label(process);
            known.members.push(Member { host, ..member(process, group, before) });
            let (waited, sent) = (waited(process), sent(before, process));
            known.rows.push(Row { waited, sent, ..row(group) });
        }
    }
    groups.retain(|id, _| alive.contains(id));
    groups.into_values().collect()
}

/// The time since a stamp of a record, when it was looked at.
fn since(process: &Process, stamp: u64) -> Duration {
    let time = |stamp| process.record.time_of(stamp, process.now);
    Duration::from_nanos(time(process.now[0]).saturating_sub(time(stamp)))
}

/// The names of the hosts of a job.
struct Hosts(Vec<(Host, String)>);

impl Hosts {
    fn of(job: &Job) -> Self {
        let mut hosts = Vec::<(Host, String)>::new();
        for process in &job.processes {
            if hosts.iter().all(|(host, _)| *host != process.host) {
                hosts.push((process.host, process.record.host.clone()));
            }
        }
        Self(hosts)
    }

    /// The name of the host of a process, if there are several, with an address if some have the
    /// same name.
    fn label(&self, Process { host, record, .. }: &Process) -> Option<String> {
        if self.0.len() < 2 {
            return None;
        }
        let is_same = |(other, name): &&(Host, String)| other != host && *name == record.host;
        let is_unique = !self.0.iter().any(|it| is_same(&it));
        Some(match host.address {
            _ if is_unique => record.host.clone(),
            Some(address) => format!("{} at {address}", record.host),
            None => format!("{}, this host", record.host),
        })
    }
}

fn row(group: &RecordedGroup) -> Row {
    let Some(call) = group.calls.last() else {
        return Row { text: "joining".to_owned(), ..Row::default() };
    };
    let (text, bytes, algorithm) = described(call);
    Row { text, bytes, algorithm, ..Row::default() }
}

/// The call in which a rank is.
fn inside(group: &RecordedGroup) -> Option<&RecordedCall> {
    group.calls.last().filter(|call| !call.is_finished)
}

/// The number of the call in which a rank is, or of its next one.
fn position(group: &RecordedGroup) -> u64 {
    let last = group.calls.last().map_or(0, |call| call.seq + u64::from(call.is_finished));
    last.max(group.finished).max(1)
}

fn member(process: &Process, group: &RecordedGroup, before: Option<&Process>) -> Member {
    let (record, now) = (&process.record, process.now);
    let time = |stamp| record.time_of(stamp, now);
    let since = |stamp| since(process, stamp);
    let current = inside(group);
    let age = match (current, group.calls.last()) {
        (Some(call), _) => since(call.begin),
        (None, Some(call)) => since(call.end.unwrap_or(call.begin)),
        (None, None) => since(group.joined),
    };
    // Messages come and go between calls.
    let age = match (current, group.message_ended) {
        (None, Some(ended)) => age.min(since(ended)),
        _ => age,
    };
    let awaited = group.awaited.map(|(message, begun)| Awaited { message, age: since(begun) });
    let earlier = before.and_then(|it| it.record.groups.iter().find(|it| it.id == group.id));
    let progress = |it: &RecordedGroup| (position(it), inside(it).is_some(), it.message_ended);
    let has_moved = earlier.is_none_or(|earlier| {
        progress(earlier) != progress(group) || earlier.awaited != group.awaited
    });
    let gaps = group.calls.windows(2).filter_map(|pair| {
        let [first, second] = pair else { return None };
        let end = time(first.end.unwrap_or(first.begin));
        (first.seq + 1 == second.seq).then(|| time(second.begin).saturating_sub(end))
    });
    let failures = record.failures.iter();
    Member {
        rank: group.rank,
        host: None,
        pid: record.pid,
        state: process.state.unwrap_or(State::Gone),
        seq: position(group),
        inside: current.map(operation),
        age,
        usual: Duration::from_nanos(gaps.max().unwrap_or(0)),
        awaited,
        longest_wait: since(now[0].saturating_sub(group.longest_wait)),
        has_moved,
        elsewhere: current.is_none().then(|| elsewhere(record, group)).flatten(),
        failure: failures.filter(|it| it.number == group.failure).map(|it| it.text.clone()).next(),
    }
}

/// The call of another group in which the rank is, or the message there for which it waits.
fn elsewhere(record: &Record, group: &RecordedGroup) -> Option<String> {
    let mut others = record.groups.iter().filter(|it| it.id != group.id && !it.is_left);
    others.find_map(|other| {
        let of = match (inside(other), other.awaited) {
            (Some(call), _) => format!("{} #{}", operation(call), call.seq),
            (None, Some((message, _))) => format!("a wait for {}", described_message(message)),
            (None, None) => return None,
        };
        Some(format!("{of} of the group {:?}", other.name))
    })
}
