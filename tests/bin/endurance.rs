//! Tasks with very many started calls, or with calls that do not end for a while.

use std::collections::VecDeque;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringfold::{Communicator, Error, ReduceOp};

use crate::groups::held;

/// Started calls that are under way at once.
const AT_ONCE: usize = 30;

/// Starts `count` calls of several lengths, and drops a third of their requests. Prints the
/// descriptors and the resident kilobytes of this process after each tenth of the calls.
pub(crate) fn endure(mut comm: Communicator, count: usize) -> Result<(), Error> {
    let size = comm.size() as f32;
    let begin = Instant::now();
    let mut under_way = VecDeque::new();
    for number in 1..=count {
        let buffer = vec![1.0_f32; [2, 100, 3000][number % 3]];
        let request = comm.start_all_reduce(buffer, ReduceOp::Sum)?;
        if number % 3 != 0 {
            under_way.push_back(request);
        }
        if under_way.len() > AT_ONCE
            && let Some(oldest) = under_way.pop_front()
        {
            assert!(oldest.wait()?.iter().all(|sum| *sum == size), "call {number}");
        }
        if number * 10 % count < 10 {
            comm.barrier()?;
            let (descriptors, kilobytes) = held();
            println!("held {descriptors} {kilobytes} after {number} in {:?}", begin.elapsed());
        }
    }
    drop(under_way);
    comm.leave()
}

/// Rank 0 starts a call in each of `groups` groups with rank 1, which begins them late, and one
/// with rank 2, which the test kills. Prints the number of helper threads before and after, and the
/// microseconds of CPU time that the helper takes in some seconds after the death.
pub(crate) fn idle(mut comm: Communicator, groups: usize, seconds: usize) -> Result<(), Error> {
    let (rank, time) = (comm.rank().0, Duration::from_secs(seconds as u64));
    let Some(mut near) = comm.split(Some(rank / 2), 0)? else { unreachable!("all have a color") };
    let all = (0..groups).map(|_| near.duplicate()).collect::<Result<Vec<_>, _>>()?;
    comm.barrier()?;
    println!("helpers {}", helpers().len());
    if rank == 2 {
        sleep(Duration::from_secs(600));
    }
    let mut all = if rank == 0 { Ok(all) } else { Err(all) };
    let start = |all: &mut Vec<Communicator>| {
        let start = |it: &mut Communicator| it.start_all_reduce(vec![1.0_f32; 10], ReduceOp::Sum);
        all.iter_mut().map(start).collect::<Result<Vec<_>, _>>()
    };
    let early = all.as_mut().map_or_else(|_| Ok(Vec::new()), start)?;
    if let Ok(request) = comm.start_barrier() {
        if rank == 0 {
            // A thread has its name a moment after it begins.
            while helpers().is_empty() {
                sleep(Duration::from_millis(1));
            }
            println!("helpers {}", helpers().len());
        }
        let died = request.wait();
        assert!(died.is_err(), "rank 2 was not killed");
    }
    let (begin, before) = (Instant::now(), taken());
    sleep(time);
    println!("took {} of {}", taken() - before, begin.elapsed().as_micros());
    if let Err(all) = &mut all {
        // Rank 0 has measured.
        sleep(time);
        start(all)?.into_iter().try_for_each(|request| request.wait().map(drop))?;
    }
    early.into_iter().try_for_each(|request| request.wait().map(drop))?;
    Ok(())
}

/// The folders of the helper threads of this process.
fn helpers() -> Vec<String> {
    let all = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let folders = all.map(|it| it.path().to_string_lossy().into_owned());
    let is_helper = |folder: &String| {
        fs::read_to_string(format!("{folder}/comm")).is_ok_and(|name| name == "ringfold-calls\n")
    };
    folders.filter(is_helper).collect()
}

/// The microseconds of CPU time of the helper threads so far.
fn taken() -> u64 {
    let of = |folder: String| {
        let text = fs::read_to_string(format!("{folder}/schedstat")).unwrap_or_default();
        let nanoseconds = text.split_whitespace().next().and_then(|it| it.parse::<u64>().ok());
        nanoseconds.unwrap_or(0) / 1000
    };
    helpers().into_iter().map(of).sum()
}
