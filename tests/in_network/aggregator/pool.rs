//! The pool: jobs stay inside it, and their memory returns however they end.

use std::thread;

use ringfold_harness::Job;
use ringfold_innetwork::trees::AskError;

use super::DEADLINE;
use super::member::{Member, run};
use super::server::Server;

const JOBS: usize = 16;
const BYTES: usize = 64 << 20;
const WINDOW: u8 = 8;
const CHUNK: usize = 128 << 10;

/// Memory of the process beside the pool: threads, sockets, the allocator.
const BESIDE: usize = 24 << 20;

#[test]
fn sixteen_jobs_stay_inside_the_pool() {
    let probe = Server::start(&[]);
    let endpoint = probe.ask(2, WINDOW, CHUNK).unwrap();
    let group = usize::try_from(probe.stats().memory.1).unwrap();
    assert!(group > 3 * usize::from(WINDOW) * CHUNK, "parts and results of a window: {group}");
    run(&endpoint, 2, CHUNK, 1, Member::leave);
    let pool = JOBS * group;
    let server = Server::start(&["--memory", &pool.to_string()]);
    let before = server.memory("VmRSS");
    let endpoints: Vec<_> = (0..JOBS).map(|_| server.ask(2, WINDOW, CHUNK).unwrap()).collect();
    let error = server.ask(2, WINDOW, CHUNK).unwrap_err();
    let wanted =
        format!("the group needs {group} bytes, and 0 of the aggregator's {pool} are free");
    let is_refused = matches!(&error, AskError::Refused { reason, .. } if *reason == wanted);
    assert!(is_refused, "{error}");
    let larger = server.ask(2, WINDOW, u32::MAX as usize).unwrap_err();
    assert!(matches!(larger, AskError::Refused { .. }), "{larger}");
    assert_eq!(server.stats().memory, (pool as u64, pool as u64));
    let text = server.home.stats(&server.aggregator.at);
    assert!(text.starts_with(&format!("pool: {pool} of {pool} bytes")), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("test ")).count(), JOBS, "{text}");
    // Some members vanish in place of leaving.
    thread::scope(|scope| {
        for (number, endpoint) in endpoints.iter().enumerate() {
            let end = move |member| {
                if number % 2 == 0 {
                    Member::leave(member)
                }
            };
            scope.spawn(move || run(endpoint, 2, BYTES, 1, end));
        }
    });
    let used = server.memory("VmHWM") - before;
    assert!(used <= pool + BESIDE, "{used} bytes, with a pool of {pool}");
    server.wait_until_free();
    server.ask(2, WINDOW, CHUNK).unwrap();
}

#[test]
fn the_memory_of_killed_ranks_returns() {
    let server = Server::start(&[]);
    let mut ranks = server.home.ranks(3, &server.aggregator.at, &["allreduce", "1000000"]);
    for _ in 0..2 {
        let job = Job::start(&mut ranks);
        job.wait_for_line(DEADLINE, |line| line == "started");
        assert!(server.stats().memory.1 > 0);
        drop(job);
        server.wait_until_free();
        assert_eq!(server.stats().groups, []);
    }
}
