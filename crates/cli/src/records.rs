//! The records of the jobs of this user on this host, or of those that a failure has copied.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use ringfold::this_moment;
use ringfold_bootstrap::{
    AwaitedMessage, FarGroup, HostLook, Logged, Record, RecordedCall, RecordedGroup, dump_ended,
    open_record, record_folder_digest, state_of,
};
use ringfold_collectives::Algorithm;
use ringfold_transport::{record_folder, ticks, trust_counter};
use ringfold_types::Call;

/// The record of a rank, and the state of its process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) record: Record,
    /// `None` for a copy: its process is not looked at.
    pub(crate) state: Option<State>,
    /// The moment of the look on the host of the process.
    pub(crate) now: [u64; 2],
    pub(crate) host: Host,
}

/// The host of a process, as this one knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// The digest of the folder with its records. Hosts may have the same name.
    pub(crate) folder: [u8; 16],
    /// The address where a process answered; `None` for this host.
    pub(crate) address: Option<IpAddr>,
}

impl Process {
    /// The processes of another host.
    pub(crate) fn far(address: IpAddr, look: HostLook) -> impl Iterator<Item = Self> {
        let HostLook { folder, now, processes } = look;
        let host = Host { folder, address: Some(address) };
        processes.into_iter().map(move |(record, letter)| {
            let state = Some(State::named(letter));
            Self { record, state, now, host }
        })
    }

    /// Whether both are the same process.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.host.folder, self.record.pid) == (other.host.folder, other.record.pid)
    }
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

    /// The state that has this letter in `ps`.
    const fn named(letter: Option<char>) -> Self {
        match letter {
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
        let far = self.processes.iter().filter(|it| it.host.address.is_some()).count();
        let elsewhere = if far == 0 { String::new() } else { format!(" and {far} on other hosts") };
        let (number, near) = (self.number(), self.processes.len() - far);
        format!("job {number} {name:?}, {size} ranks, {near} of them here{elsewhere}")
    }

    /// The largest group with members on other hosts.
    pub(crate) fn far_group(&self) -> Option<FarGroup> {
        let living = self.processes.iter().filter(|it| it.state != Some(State::Gone));
        let groups = || living.clone().flat_map(|it| &it.record.groups).filter(|it| !it.is_left);
        let near = |id| groups().filter(move |it| it.id == id).map(|it| it.rank);
        let is_far = |it: &&RecordedGroup| {
            (near(it.id).collect::<BTreeSet<_>>().len() as u64) < it.size && it.look.is_some()
        };
        let id = groups().filter(is_far).max_by_key(|it| it.size)?.id;
        let ports = groups().filter(|it| it.id == id).filter_map(|it| it.look).collect();
        Some(FarGroup { id, ports, near: near(id).collect() })
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
        if let Some(owners) = denied(wanted) {
            bail!("permission denied: {owners}");
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(" ") };
        bail!(
            "no job or process {wanted} of this user on this host; the jobs are: {known}. Run the \
             command on a host of the job"
        );
    }
    Ok(found)
}

/// The users who may look at the process with this number, or at their jobs on this host.
fn denied(wanted: &str) -> Option<String> {
    let own = fs::metadata("/proc/self").ok()?.uid();
    let process =
        wanted.parse::<u32>().ok().and_then(|pid| fs::metadata(format!("/proc/{pid}")).ok());
    if let Some(owner) = process.map(|it| it.uid()).filter(|owner| *owner != own) {
        return Some(format!(
            "process {wanted} is of user {owner}, and only that user may look at it"
        ));
    }
    let folders = fs::read_dir(record_folder().parent()?).ok()?.flatten();
    let names = folders.filter_map(|it| it.file_name().into_string().ok());
    let users = names.filter_map(|it| it.strip_prefix("ringfold-")?.parse::<u32>().ok());
    let users: Vec<_> = users.filter(|user| *user != own).map(|it| it.to_string()).collect();
    (!users.is_empty()).then(|| {
        format!(
            "{wanted} is no job of this user; the users with jobs on this host are {}, and only \
             they may look at theirs",
            users.join(" ")
        )
    })
}

/// Adds to a folder for dumps the records of ranks of this host that were killed, and that no other
/// has copied there.
///
/// # Errors
/// The folder or the records cannot be used.
pub(crate) fn complete(folder: &Path) -> io::Result<()> {
    trust_counter();
    dump_ended(&record_folder(), ticks, Some(&fs::canonicalize(folder)?))
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
    let host = Host { folder: record_folder_digest(&record_folder()), address: None };
    let seen = joined.map(|record| Process {
        state: is_here.then(|| State::named(state_of(&record))),
        record,
        now: moment(),
        host,
    });
    seen.collect()
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

/// This moment for `Record::time_of`.
pub(crate) fn moment() -> [u64; 2] {
    trust_counter();
    this_moment()
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
