//! Very many started calls, and calls that do not end for a while.

use std::time::Duration;

use rustix::process::Signal;

use crate::job::{SOON, start};

/// Descriptors that a rank opens once, when first it needs them: an eventfd of the communicator,
/// and an epoll instance and an eventfd of the helper thread.
const OPENED_ONCE: usize = 3;

/// Starts calls, which leave nothing behind.
fn endure(transport: &str, count: usize, limit: Duration) {
    let job = start(2, transport, &["endure", &count.to_string()], &[]);
    for (rank, process) in job.0.iter().enumerate() {
        let held = |_| {
            let line = process.line_within("held ", limit);
            println!("{transport}: rank {rank}: {line}");
            let mut words = line.split(' ').map(|word| word.parse::<usize>().unwrap_or(0));
            [words.next().unwrap(), words.next().unwrap()]
        };
        let all: Vec<[usize; 2]> = (0..10).map(held).collect();
        // The first calls fill caches, and the pools of the allocator. The helper begins with the
        // first call that is unfinished after its start, which may be a late one.
        let (early, last) = (all[1], all[9]);
        assert!(last[0] <= early[0] + OPENED_ONCE, "rank {rank}: {early:?} {last:?} descriptors");
        assert!(last[1] < early[1] + 1024, "rank {rank}: {early:?} {last:?} kilobytes");
        process.line("done");
    }
}

#[test]
fn started_calls_leave_nothing_behind() {
    for transport in ["shm", "tcp"] {
        endure(transport, 5000, Duration::from_secs(60));
    }
}

#[test]
#[ignore = "minutes: see tests/long"]
fn a_million_started_calls_leave_nothing_behind() {
    for transport in ["shm", "tcp"] {
        endure(transport, 1_000_000, Duration::from_secs(3600));
    }
}

/// One thread attends to the calls of all communicators, and there is none without such calls. It
/// takes less than a hundredth of a CPU, also after a death.
fn rest(transport: &str, groups: usize, seconds: usize) {
    let task = ["idle", &groups.to_string(), &seconds.to_string()];
    let job = start(3, transport, &task, &[]);
    for rank in 0..2 {
        assert_eq!(job.0[rank].line("helpers "), "0", "rank {rank}");
    }
    assert_eq!(job.0[0].line("helpers "), "1");
    job.0[2].signal(Signal::KILL);
    let line = job.0[0].line_within("took ", SOON + Duration::from_secs(seconds as u64));
    let (taken, of) = line.split_once(" of ").unwrap();
    let [taken, of] = [taken, of].map(|it| it.parse::<u64>().unwrap());
    println!("{transport}, {groups} groups: the helper takes {taken} us in {of} us");
    assert!(taken < of / 100, "{taken} of {of} us");
    job.0[0].line_within("done", 2 * SOON + Duration::from_secs(2 * seconds as u64));
}

#[test]
fn the_helper_rests_beside_calls_that_do_not_end() {
    rest("shm", 64, 2);
    rest("tcp", 8, 2);
}
