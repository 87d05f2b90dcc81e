//! Tasks of this program with groups of ranks, as described in its head.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ringfold::{Communicator, Error, ReduceOp};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The groups of a rank, with their names. Each rank is in four: rows, columns, a copy, and all.
fn groups(mut comm: Communicator, rows: u32) -> Result<Vec<(String, Communicator)>, Error> {
    let rank = comm.rank().0;
    let mut groups = Vec::new();
    for color in [rank / rows, rank % rows] {
        groups.extend(comm.split(Some(color), 0)?);
    }
    groups.push(comm.duplicate()?);
    groups.push(comm);
    let named = |group: Communicator| (group.group_name().unwrap_or("all").to_owned(), group);
    Ok(groups.into_iter().map(named).collect())
}

/// Calls in all groups at once, each from a thread. The groups of the `victim` fail, and the others
/// go on until these have failed.
pub(crate) fn grouped(comm: Communicator, victim: u32, bytes: usize) -> Result<(), Error> {
    const ROWS: u32 = 2;
    let rank = comm.rank().0;
    let has_victim = [rank / ROWS == victim / ROWS, rank % ROWS == victim % ROWS, true, true];
    let mut groups = groups(comm, ROWS)?;
    let is_over = AtomicBool::new(false);
    println!("started");
    thread::scope(|scope| {
        let is_over = &is_over;
        let mut failing = Vec::new();
        for ((name, group), fails) in groups.iter_mut().zip(has_victim) {
            let calls = scope.spawn(move || {
                let mut buffer = vec![0.0_f32; bytes / 4];
                let error = loop {
                    buffer[0] = f32::from(u8::from(is_over.load(Ordering::Relaxed)));
                    match group.all_reduce(&mut buffer, ReduceOp::Max) {
                        Ok(()) if buffer[0] > 0.0 => break None,
                        Ok(()) => {}
                        Err(error) => break Some(error),
                    }
                };
                match error {
                    None => println!("sound {name}"),
                    Some(Error::Failed(failure)) => {
                        let named = failure.group.as_deref().unwrap_or("all");
                        println!("cause {named}: {}", failure.cause);
                    }
                    Some(other) => println!("cause ?: {other}"),
                }
            });
            failing.extend(fails.then_some(calls));
        }
        failing.into_iter().for_each(|calls| calls.join().expect("no panic"));
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(())
}

/// Makes groups of all ranks, one after the other, until that fails. Then prints the failure of the
/// whole communicator.
pub(crate) fn joining(mut comm: Communicator) -> Result<(), Error> {
    println!("started");
    let error = loop {
        match comm.duplicate() {
            Ok(group) => drop(group),
            Err(error) => break error,
        }
    };
    println!("ended {error:?}");
    match comm.barrier() {
        Err(Error::Failed(failure)) => println!("cause {}", failure.cause),
        other => println!("cause none: {other:?}"),
    }
    Ok(())
}

/// Makes a group of all ranks while `who` may open `spare` more descriptors. Prints the outcome,
/// and that of a barrier of all ranks.
pub(crate) fn short(mut comm: Communicator, who: u32, spare: usize) -> Result<(), Error> {
    comm.barrier()?;
    if comm.rank().0 == who {
        // The folder of descriptors was open, too.
        let limit = Some((held().0 - 1 + spare) as u64);
        setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit })
            .expect("limits can be lowered");
    }
    // A member may learn in its first call that another one has failed.
    let group = comm.duplicate().and_then(|mut group| group.barrier().map(|()| group));
    match &group {
        Ok(_) => println!("group made"),
        Err(error) => println!("group failed: {error:?}"),
    }
    comm.barrier()?;
    println!("barrier passed");
    drop(group);
    comm.leave()
}

/// Makes `groups` groups of all ranks, uses each and drops them, `rounds` times. Prints the
/// descriptors and the resident kilobytes of this process after each tenth of the rounds.
pub(crate) fn churn(mut comm: Communicator, groups: usize, rounds: usize) -> Result<(), Error> {
    let size = comm.size() as f32;
    let begin = Instant::now();
    for round in 1..=rounds {
        let made = (0..groups).map(|_| comm.duplicate()).collect::<Result<Vec<_>, _>>()?;
        for mut group in made {
            let mut one = [1.0_f32];
            group.all_reduce(&mut one, ReduceOp::Sum)?;
            assert!((one[0] - size).abs() < 0.5, "{one:?}");
            group.leave()?;
        }
        if round * 10 % rounds < 10 {
            // The other ranks have left all groups, and this one has closed them.
            comm.barrier()?;
            let (descriptors, kilobytes) = held();
            println!("held {descriptors} {kilobytes} after {round} in {:?}", begin.elapsed());
            comm.barrier()?;
        }
    }
    comm.leave()
}

/// The number of open descriptors, and the resident kilobytes.
pub(crate) fn held() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().next().and_then(|word| word.parse().ok());
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (descriptors, kilobytes.unwrap_or(0))
}

/// Splits the ranks into `colors` groups, `rounds` times. Prints the microseconds of each split on
/// the rank that takes longest.
pub(crate) fn split(mut comm: Communicator, colors: u32, rounds: usize) -> Result<(), Error> {
    for _ in 0..rounds {
        comm.barrier()?;
        let begin = Instant::now();
        let group = comm.split(Some(comm.rank().0 % colors), 0)?;
        let mut took = [begin.elapsed().as_micros() as f64];
        comm.all_reduce(&mut took, ReduceOp::Max)?;
        if comm.rank().0 == 0 {
            println!("split {:.0}", took[0]);
        }
        group.map_or(Ok(()), Communicator::leave)?;
    }
    comm.leave()
}
