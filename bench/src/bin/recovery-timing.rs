//! Times how ranks go on after a failure, beside splits of as many ranks, in turn.
//!
//! `recovery-timing SEED ROUNDS FOLDER`, under `ringrun --enable-recovery`. In each round a random
//! rank kills itself. The others shrink and split; then they grow by a newcomer and split again.
//! Each time ends when the first all-reduce of the new communicator has returned on all ranks. Rank
//! 0 prints a word, the number of ranks and the microseconds of each. It prints the id of each
//! round, with which the caller starts a newcomer: `recovery-timing SEED ROUNDS FOLDER ROUND ID`. A
//! newcomer makes the file ROUND in FOLDER before it knocks. All processes are on one host.

use std::fs;
use std::io::Write;
use std::mem::replace;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use ringfold::{Communicator, Config, Error, Rank, ReduceOp, UniqueId};
use ringfold_launcher::{Stream, failed};
use ringfold_types::Digest;
use rustix::process::{Signal, getpid, kill_process};

/// From the choice of the rank that dies until it does, for each rank: all others are in a call by
/// then, also where many ranks share a CPU.
const WARNING: Duration = Duration::from_millis(5);

/// The least time from the choice until the death.
const WARNING_MIN: Duration = Duration::from_millis(100);

/// From the newcomer's file until it certainly waits at the door.
const KNOCK: Duration = Duration::from_millis(300);

/// The time between two looks for the newcomer's file, and the number of looks.
const LOOK: (Duration, usize) = (Duration::from_millis(10), 6000);

fn main() -> ExitCode {
    run().map_or_else(|error| failed("error", &*error, 1), |()| ExitCode::SUCCESS)
}

fn run() -> anyhow::Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let usage = "recovery-timing SEED ROUNDS FOLDER [ROUND ID]";
    let (seed, rounds, folder, newcomer) = match &given[..] {
        [seed, rounds, folder, newcomer @ ..] if matches!(newcomer.len(), 0 | 2) => {
            (seed, rounds.parse().context(usage)?, PathBuf::from(folder), newcomer)
        }
        _ => bail!(usage),
    };
    let mut first = 0;
    let mut comm = if let [round, id] = newcomer {
        fs::write(folder.join(round), "")?;
        first = round.parse::<usize>().context(usage)? + 1;
        let mut comm = Communicator::init_as_newcomer(&Config::from_env()?, &id.parse()?)?;
        report("grow", &mut comm, u64::MAX)?;
        split(&mut comm)?;
        comm
    } else {
        Communicator::init()?
    };
    for round in first..rounds {
        let size = comm.size();
        let dice = Digest::of(format!("{seed} {round}").as_bytes());
        comm = shrink(comm, Rank::at(usize::try_from(dice % size as u64)?))?;
        split(&mut comm)?;
        let id = if comm.rank() == Rank(0) { Some(invite(round, &folder)?) } else { None };
        comm.barrier()?;
        let begin = now();
        let larger = comm.grow(1, id.as_ref())?;
        let smaller = replace(&mut comm, larger.context("no newcomer has come")?);
        report("grow", &mut comm, begin)?;
        drop(smaller);
        split(&mut comm)?;
    }
    Ok(comm.leave()?)
}

/// All ranks call while `victim` dies. Returns the communicator of the others.
fn shrink(mut comm: Communicator, victim: Rank) -> anyhow::Result<Communicator> {
    let warning = WARNING_MIN.max(WARNING * Rank::at(comm.size()).0);
    let mut death = [now() + micros(warning)];
    comm.broadcast(&mut death, Rank(0))?;
    if comm.rank() == victim {
        sleep(Duration::from_micros(death[0].saturating_sub(now())));
        kill_process(getpid(), Signal::KILL)?;
    }
    let failure = loop {
        match comm.all_reduce(&mut [1_u64], ReduceOp::Sum) {
            Ok(()) => {}
            Err(Error::Failed(failure)) => break failure,
            Err(error) => return Err(error.into()),
        }
    };
    let known = now();
    let mut next = comm.shrink().with_context(|| failure.cause.to_string())?;
    let first_known = report("shrink", &mut next, known)?;
    tell(&next, "detect", first_known - death[0])?;
    Ok(next)
}

/// Times a split into one group. A communicator's first split is slower, so it is not timed.
fn split(comm: &mut Communicator) -> anyhow::Result<()> {
    comm.split(Some(0), 0)?.map_or(Ok(()), Communicator::leave)?;
    comm.barrier()?;
    let begin = now();
    let mut group = comm.split(Some(0), 0)?.context("all ranks have the color")?;
    report("split", &mut group, begin)?;
    Ok(group.leave()?)
}

/// Makes an id, prints it, and waits until the newcomer of this round waits at its door.
fn invite(round: usize, folder: &std::path::Path) -> anyhow::Result<UniqueId> {
    let id = UniqueId::new(&Config::from_env()?)?;
    print(&format!("newcomer {round} {id}\n"))?;
    let file = folder.join(round.to_string());
    let has_come = (0..LOOK.1).any(|_| {
        file.exists() || {
            sleep(LOOK.0);
            false
        }
    });
    anyhow::ensure!(has_come, "no newcomer has made {}", file.display());
    sleep(KNOCK);
    Ok(id)
}

/// Makes the first all-reduce of a communicator. Prints the time from the first beginning of a rank
/// until the last return, and returns that beginning.
fn report(what: &str, comm: &mut Communicator, begin: u64) -> anyhow::Result<u64> {
    comm.all_reduce(&mut [1_u64], ReduceOp::Sum)?;
    let (mut first, mut last) = ([begin], [now()]);
    comm.all_reduce(&mut first, ReduceOp::Min)?;
    comm.all_reduce(&mut last, ReduceOp::Max)?;
    tell(comm, what, last[0] - first[0])?;
    Ok(first[0])
}

fn tell(comm: &Communicator, what: &str, took: u64) -> anyhow::Result<()> {
    match comm.rank() {
        Rank(0) => print(&format!("{what} {} {took}\n", comm.size())),
        _ => Ok(()),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(Stream::Out.write_all(text.as_bytes())?)
}

/// Microseconds on the clock of the host.
fn now() -> u64 {
    micros(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
