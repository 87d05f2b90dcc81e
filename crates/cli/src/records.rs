//! The records of the jobs of this user on this host, or of those that a failure has copied.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use ringfold_bootstrap::{AwaitedMessage, Logged, Record, RecordedCall, open_record, state_of};
use ringfold_collectives::Algorithm;
use ringfold_transport::record_folder;
use ringfold_types::Call;

/// The record of a rank, and the state of its process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) record: Record,
    /// `None` for a copy: its process is not looked at.
    pub(crate) state: Option<State>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Sleeping,
    Stopped,
    Gone,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
        }
    }

    fn of(record: &Record) -> Self {
        match state_of(record) {
            None => Self::Gone,
            Some('T' | 't') => Self::Stopped,
            Some('R') => Self::Running,
            Some(_) => Self::Sleeping,
        }
    }
}

/// The processes of a job on this host, by rank.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) processes: Vec<Process>,
}

impl Job {
    /// The number of the job, as `JOB` names it.
    pub(crate) fn number(&self) -> String {
        self.processes.first().map_or_else(String::new, |it| number(&it.record))
    }

    fn first(&self) -> &Record {
        &self.processes[0].record
    }

    /// The number of the job, its name and its size.
    pub(crate) fn title(&self) -> String {
        let Record { name, size, .. } = self.first();
        format!(
            "job {} {name:?}, {size} ranks, {} of them here",
            self.number(),
            self.processes.len()
        )
    }

    /// Whether a process of the job has not ended.
    fn is_alive(&self) -> bool {
        self.processes.iter().any(|it| it.state != Some(State::Gone))
    }
}

fn number(record: &Record) -> String {
    format!("{:016x}", record.job[0])[..8].to_owned()
}

/// Returns the jobs of this user on this host that have a living process, or those that `wanted`
/// names, dead ones too. `wanted` is the number or the name of a job, or the number of a process.
///
/// # Errors
/// The records cannot be read, or there is no such job.
pub(crate) fn jobs(wanted: Option<&str>) -> anyhow::Result<Vec<Job>> {
    let folder = record_folder();
    let files = if folder.exists() { files(&folder)? } else { Vec::new() };
    let jobs = grouped(read(files, true));
    let Some(wanted) = wanted else {
        return Ok(jobs.into_iter().filter(Job::is_alive).collect());
    };
    let is_wanted = |job: &Job| {
        let is_process = |it: &Process| it.record.pid.to_string() == wanted;
        job.number() == wanted || job.first().name == wanted || job.processes.iter().any(is_process)
    };
    let known: Vec<_> = jobs.iter().map(Job::number).collect();
    let found: Vec<_> = jobs.into_iter().filter(is_wanted).collect();
    if found.is_empty() {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(" ") };
        bail!(
            "no job or process {wanted} of this user on this host; the jobs are: {known}. On other \
             hosts run the command there"
        );
    }
    Ok(found)
}

/// Returns the jobs in a folder to which failures have copied records.
///
/// # Errors
/// The folder cannot be read, or has no record.
pub(crate) fn copies(folder: &Path) -> anyhow::Result<Vec<Job>> {
    let jobs = grouped(read(files(folder)?, false));
    ensure!(!jobs.is_empty(), "{}: it has no records of this version", folder.display());
    Ok(jobs)
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// The readable records in these files. Others are of processes that begin or end, or of another
/// version.
fn read(files: Vec<PathBuf>, is_here: bool) -> Vec<Process> {
    let records = files.iter().filter_map(|path| open_record(path).ok());
    let joined = records.filter(|record| record.size > 0);
    joined.map(|record| Process { state: is_here.then(|| State::of(&record)), record }).collect()
}

/// The jobs of these processes. A job that ran before under the same name and secret has the same
/// number: of a rank only the latest process counts.
fn grouped(mut processes: Vec<Process>) -> Vec<Job> {
    processes.sort_by_key(|Process { record, .. }| {
        (record.job, record.rank, Reverse(record.started_at()))
    });
    processes.dedup_by_key(|it| (it.record.job, it.record.rank));
    let by_job = processes.chunk_by(|a, b| a.record.job == b.record.job);
    by_job.map(|processes| Job { processes: processes.to_vec() }).collect()
}

/// A call as text, as in `allreduce [f32 x 1024, sum]`, its bytes, and its algorithm.
pub(crate) fn described(call: &RecordedCall) -> (String, Option<u64>, Option<&'static str>) {
    let logged = Logged::from(call);
    let [kinds, count, root, ..] = logged.words;
    let plain = Call::from_words([kinds, count, root]).ok();
    let bytes = plain.and_then(|it| (it.count as u64).checked_mul(it.data_type.bytes() as u64));
    let algorithms = plain.map(|it| Algorithm::of(it.collective));
    let algorithm = algorithms.and_then(|all| all.get(usize::from(logged.algorithm)));
    (logged.text(), bytes, algorithm.map(|it| it.name))
}

/// A message for which a rank waits as text: `a message of rank 1 with tag 7`.
pub(crate) fn described_message(AwaitedMessage { is_sent, peer, tag }: AwaitedMessage) -> String {
    let peer = peer.map_or_else(|| "any rank".to_owned(), |peer| format!("rank {peer}"));
    let tag = tag.map_or_else(|| "any tag".to_owned(), |tag| format!("tag {tag}"));
    if is_sent {
        format!("its message with {tag} to go to {peer}")
    } else {
        format!("a message of {peer} with {tag}")
    }
}

/// The first word of a call as text: `allreduce`.
pub(crate) fn operation(call: &RecordedCall) -> String {
    let text = Logged::from(call).text();
    text.split(' ').next().unwrap_or_default().to_owned()
}
