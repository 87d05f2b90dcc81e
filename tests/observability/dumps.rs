//! Dumps of ranks that are killed together, so that none of them copies its record.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ringfold_bootstrap::open_record;
use ringfold_harness::{Folder, Job, Ranks, kill, program};
use rustix::process::Signal;

use crate::{LONG, ringfold};

/// The ranks and their calls until a moment, in a folder of files that ranks write.
struct Notes(String);

impl Notes {
    fn new(folder: &Folder) -> Self {
        let notes = folder.at("notes");
        fs::create_dir(&notes).unwrap();
        Self(notes)
    }

    /// The number of calls that the rank has noted, and the time of the last note.
    fn of(&self, rank: usize) -> (u64, Duration) {
        let note = fs::read(format!("{}/{rank}", self.0)).unwrap();
        let note = u128::from_le_bytes(note.try_into().unwrap());
        let (calls, nanos) = ((note >> 64).try_into().unwrap(), note & u128::from(u64::MAX));
        (calls, Duration::from_nanos(nanos.try_into().unwrap()))
    }
}

fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

/// The time from the last event in the dump to the kill, of each rank. Panics if the dump lacks a
/// rank, or a call that a rank has noted.
fn gaps(dump: &str, notes: &Notes, kills: &[Duration]) -> Vec<Duration> {
    let files = fs::read_dir(dump).unwrap().map(|entry| entry.unwrap().path());
    let records = files.map(|path| open_record(&path).unwrap());
    let mut gaps = vec![None; kills.len()];
    for record in records {
        let rank = usize::try_from(record.rank).unwrap();
        let (noted, at) = notes.of(rank);
        // The first call is a barrier.
        let finished = record.groups[0].finished - 1;
        let last = Duration::from_nanos(record.time_of(record.last_stamp(), [0; 2]));
        assert!(
            finished >= noted,
            "rank {rank} has noted {noted} calls until {at:?}, and the dump has {finished} until \
             {last:?}"
        );
        gaps[rank] = Some(kills[rank].saturating_sub(last));
    }
    gaps.iter()
        .enumerate()
        .map(|(rank, gap)| gap.unwrap_or_else(|| panic!("no rank {rank}")))
        .collect()
}

/// Kills all of `size` ranks in one moment. Returns the gaps in the dump.
fn killed(size: usize, transport: &str) -> Vec<Duration> {
    let folder = Folder::new();
    let (dump, notes) = (folder.at("dump"), Notes::new(&folder));
    let ranks = Ranks::start(size, |_, command| {
        command.args(["noted", &notes.0]).env("RINGFOLD_TRANSPORT", transport);
        command.env("RINGFOLD_DUMP", &dump);
    });
    ranks.wait_for("started");
    std::thread::sleep(Duration::from_secs(1));
    let kill = |job: &Job| {
        job.signal(Signal::KILL);
        since_1970()
    };
    let kills: Vec<_> = ranks.0.iter().map(kill).collect();
    drop(ranks.finish(LONG));
    let seen = ringfold(&["inspect", &dump]);
    let text = String::from_utf8_lossy(&seen.stdout);
    let head = format!("{size} ranks, {size} of them here");
    assert!(seen.status.success() && text.contains(&head), "{seen:?}");
    gaps(&dump, &notes, &kills)
}

#[test]
fn ranks_that_are_killed_together_are_in_the_dump() {
    for transport in ["shm", "tcp"] {
        println!("{transport}: {:?}", killed(8, transport));
    }
}

/// A guardian does what no rank can do.
#[test]
fn ringrun_completes_the_dump() {
    let folder = Folder::new();
    let (dump, notes) = (folder.at("dump"), Notes::new(&folder));
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", "4"]).arg(program::own("rank")).args(["noted", &notes.0]);
    command.env("RINGFOLD_DUMP", &dump).env("RINGFOLD_TRANSPORT", "shm");
    let job = Job::start(&mut command);
    let started = job.lines(4);
    let pid = |line: &String| line.rsplit(' ').next().unwrap().parse().unwrap();
    let pids: Vec<u32> = started.iter().map(pid).collect();
    pids.into_iter().for_each(|pid| kill(pid, Signal::KILL));
    let outcome = job.finish(LONG);
    assert!(!outcome.status.success(), "{outcome:?}");
    drop(gaps(&dump, &notes, &[since_1970(); 4]));
}

/// Prints figures of `tests/long records`.
#[test]
#[ignore = "it takes a minute: tests/long records"]
fn dumps_of_64_killed_ranks_are_complete() {
    drop(program::binary("ringfold"));
    for transport in ["shm", "tcp"] {
        let mut gaps = killed(64, transport);
        gaps.sort();
        println!(
            "64 ranks by {transport}, killed together: no call is lost; from the last event to the \
             kill {:?} (median), {:?} at most",
            gaps[32], gaps[63]
        );
    }
}
