//! Reads the counters of a record.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use ringfold_types::limits::CALL_KINDS_MAX;

use super::count::CallKind;
use super::format::{DURATIONS, GROUPS, KINDS, RECORD_WORDS, at, group, group_at, kind, untimed};
use super::read::{check_version, open_file, pair, state_of_process, text, to_words, traffic_of};

/// The counters of a process, which only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The number of the process on its host.
    pub pid: u64,
    /// When the process began, in the kernel's ticks since the start of the system.
    pub begun: u64,
    /// The number of the job, in two words.
    pub job: [u64; 2],
    /// The name of the job.
    pub name: String,
    /// The rank of the process in its first group.
    pub rank: u64,
    /// The number of ranks in its first group.
    pub size: u64,
    /// The nanoseconds for which calls waited.
    pub waited: u64,
    /// The bytes sent by each way, and how often others took the place of a lost way. The order is
    /// that of `Way::all`.
    pub traffic: Vec<[u64; 2]>,
    /// The calls that ended, by kind. Those without a kind are calls of kinds without a place.
    pub calls: Vec<CountedCalls>,
}

/// The calls of one kind that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedCalls {
    /// The kind.
    pub kind: Option<CallKind>,
    /// The calls that ended in their first moment, which are not timed.
    pub untimed: u64,
    /// The nanoseconds of the others.
    pub nanoseconds: u64,
    /// The number of the others by their duration: up to 1, 4, 16 microseconds and so on, and in
    /// the last place beyond.
    pub durations: [u64; DURATIONS],
}

impl Counters {
    /// Raises the counters to those of an earlier look at the same process. A look may miss calls
    /// that change their kind meanwhile.
    pub fn raise_to(&mut self, before: &Self) {
        self.waited = self.waited.max(before.waited);
        for (now, before) in self.traffic.iter_mut().flatten().zip(before.traffic.iter().flatten())
        {
            *now = (*now).max(*before);
        }
        for earlier in &before.calls {
            let Some(now) = self.calls.iter_mut().find(|it| it.kind == earlier.kind) else {
                self.calls.push(*earlier);
                continue;
            };
            now.untimed = now.untimed.max(earlier.untimed);
            now.nanoseconds = now.nanoseconds.max(earlier.nanoseconds);
            for (now, before) in now.durations.iter_mut().zip(earlier.durations) {
                *now = (*now).max(before);
            }
        }
    }
}

impl CountedCalls {
    /// The largest of the counted durations in nanoseconds.
    pub const LIMITS: [u64; DURATIONS - 1] = {
        let (mut limits, mut index) = ([1000; DURATIONS - 1], 1);
        while index < limits.len() {
            limits[index] = 4 * limits[index - 1];
            index += 1;
        }
        limits
    };
}

/// Reads the counters of the record in a file, which its process may write meanwhile. Returns
/// `None` if that process, which is on this host, has ended or has not joined. Its calls and events
/// are not read: a page of metrics takes the counters of all records of a host.
///
/// # Errors
/// The file cannot be read, or is no record of this version.
pub fn open_counters(path: &Path) -> io::Result<Option<Counters>> {
    let file = open_file(path)?;
    let mut first = vec![0; RECORD_WORDS];
    read_part(&file, &mut first, 0..at::TRAFFIC.end)?;
    check_version(&first).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let is_running = || state_of_process(first[at::PID], first[at::BEGUN]).is_some();
    if first[at::SIZE] == 0 || !is_running() {
        return Ok(None);
    }
    read_part(&file, &mut first, KINDS)?;
    let mut second = vec![0; RECORD_WORDS];
    for group in (0..GROUPS).map(group_at) {
        let facts = group.start..group.start + group::CALLS;
        read_part(&file, &mut first, facts.clone())?;
        if first[facts.start + group::KIND] != 0 {
            read_part(&file, &mut second, facts)?;
        }
    }
    Ok(Some(counters_of(&[first, second])))
}

/// Reads these words of the record in a file into their places.
fn read_part(file: &File, words: &mut [u64], part: Range<usize>) -> io::Result<()> {
    let mut bytes = vec![0; size_of::<u64>() * part.len()];
    file.read_exact_at(&mut bytes, (size_of::<u64>() * part.start) as u64)?;
    words[part].copy_from_slice(&to_words(&bytes));
    Ok(())
}

/// The counters in two copies of a record's words, the second made after the first. Only the groups
/// of the second one are used. Changes between the copies may be missing, and nothing counts twice.
pub(crate) fn counters_of(copies: &[Vec<u64>; 2]) -> Counters {
    let [first, second] = copies;
    let mut calls: Vec<CountedCalls> = (0..CALL_KINDS_MAX)
        .map(|index| {
            let words = &first[KINDS][index * kind::WORDS..][..kind::WORDS];
            let mut durations = [0; DURATIONS];
            durations.copy_from_slice(&words[kind::CALLS]);
            CountedCalls {
                kind: CallKind::from_key(words[kind::KEY]),
                untimed: words[kind::UNTIMED],
                nanoseconds: words[kind::NANOSECONDS],
                durations,
            }
        })
        .collect();
    for index in 0..GROUPS {
        let place = group_at(index);
        let Some((kind, more, _)) = untimed(&first[place.clone()], &second[place]) else {
            continue;
        };
        if let Some(kind) = calls.get_mut(kind) {
            kind.untimed = kind.untimed.saturating_add(more);
        }
    }
    let is_used = |it: &CountedCalls| it.untimed > 0 || it.durations.iter().any(|it| *it > 0);
    calls.retain(is_used);
    Counters {
        pid: first[at::PID],
        begun: first[at::BEGUN],
        job: pair(first, at::JOB),
        name: text(&first[at::NAME], u64::MAX),
        rank: first[at::RANK],
        size: first[at::SIZE],
        waited: first[at::WAITED],
        traffic: traffic_of(copies),
        calls,
    }
}
