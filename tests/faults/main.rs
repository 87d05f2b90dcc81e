//! Ranks that die, stop, differ or are late, over every transport. Every survivor gets the same
//! typed failure cause in bounded time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "times, for people")]

mod groups;
mod job;
mod page;
mod recovery;
mod requests;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use groups::{
    killed_while_groups_are_made, killed_with_calls_in_several_groups,
    stopped_with_calls_in_several_groups,
};
use job::{SOON, start, timeout};
use recovery::{
    a_killed_rank_is_replaced, a_rank_that_dies_at_each_start_is_named,
    a_second_death_begins_again, a_stopped_rank_is_left_out,
    half_of_the_ranks_agree_by_the_vote_of_the_launcher, half_of_the_ranks_do_not_go_on,
    half_of_the_ranks_go_on_by_the_vote_of_the_launcher, survivors_agree_on_the_same_values,
    the_survivors_of_each_death_go_on,
};
use ringfold_harness::{Folder, Job, Random, Ranks};
use ringfold_types::limits;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Defines the named tests over each transport, as in `tcp::killed_in_the_middle_of_a_window`.
macro_rules! over_each_transport {
    ($($test:ident)*) => {
        over!(shm, true, $($test)*);
        over!(tcp, true, $($test)*);
        // Only with devices: `tests/rdma` runs these in a virtual machine.
        over!(rdma, !crate::job::rdma_hosts().is_empty(), $($test)*);
    };
}

macro_rules! over {
    ($transport:ident, $is_there:expr, $($test:ident)*) => {
        mod $transport {
            $(
                #[test]
                fn $test() {
                    if $is_there {
                        super::$test(stringify!($transport));
                    }
                }
            )*
        }
    };
}

over_each_transport! {
    killed_in_the_middle_of_a_gibibyte
    killed_in_the_middle_of_a_window
    killed_in_the_middle_of_messages
    killed_with_started_calls_under_way
    stopped_with_started_calls_under_way
    killed_while_ranks_wait_for_any_sender
    stopped_in_the_middle_of_messages
    a_window_on_one_rank_only_is_reported
    another_window_on_one_rank_is_reported
    an_abort_ends_the_calls_of_all_ranks
    another_range_on_one_rank_is_reported
    stopped_in_the_middle_of_a_call
    killed_with_calls_in_several_groups
    stopped_with_calls_in_several_groups
    killed_while_groups_are_made
    different_calls_are_reported_with_their_ranks
    a_rank_that_diverges_is_named
    a_difference_without_a_wait_is_reported_on_leaving
    a_death_on_one_host_is_known_at_once
    a_late_rank_is_named
    a_message_that_differs_is_the_cause_after_its_sender_has_left
    a_rank_that_exits_without_leaving_has_died
    a_death_is_noticed_while_a_child_of_the_rank_lives
    unauthenticated_peers_do_not_disturb_a_job
    survivors_agree_on_the_same_values
    the_survivors_of_each_death_go_on
    a_killed_rank_is_replaced
    a_rank_that_dies_at_each_start_is_named
    a_stopped_rank_is_left_out
    a_second_death_begins_again
    half_of_the_ranks_do_not_go_on
    half_of_the_ranks_go_on_by_the_vote_of_the_launcher
    half_of_the_ranks_agree_by_the_vote_of_the_launcher
}

fn all_report(causes: &[String], words: &[&str]) {
    for cause in causes {
        assert_eq!(cause, &causes[0], "survivors agree");
        assert!(words.iter().all(|word| cause.contains(word)), "{cause:?} names {words:?}");
    }
}

/// Kills a rank in the middle of its calls. The others soon report the same cause.
fn killed_in_the_middle(job: &Ranks, transport: &str, victim: usize) {
    job.wait_for("started");
    std::thread::sleep(Duration::from_millis(300));
    let killed = Instant::now();
    job.0[victim].signal(Signal::KILL);
    let (causes, last) = job.causes(victim);
    println!("{transport}: rank {victim} killed, all survivors fail after {:?}", last - killed);
    all_report(&causes, &[&format!("the process of rank {victim} is gone")]);
    assert!(last - killed < SOON);
}

fn killed_in_the_middle_of_a_gibibyte(transport: &str) {
    killed_in_the_middle_of(transport, "allreduce", 1 << 30);
}

/// Rendezvous sends: long messages stay in the victim's memory until a peer has read them.
#[test]
fn killed_in_the_middle_of_a_rendezvous_send() {
    let forced = [("RINGFOLD_SHM_CMA", "64K"), ("RINGFOLD_CHUNK", "1M")];
    let single_copy = [("RINGFOLD_ALGO", "broadcast:single_copy"), ("RINGFOLD_CHUNK", "1M")];
    let all = [("allreduce", forced), ("broadcast", single_copy)];
    for ((what, settings), victim) in all.into_iter().flat_map(|it| [(it, 2), (it, 0)]) {
        let job = start(3, "shm", &[what, &(256 << 20).to_string()], &settings);
        killed_in_the_middle(&job, "shm", victim);
    }
}

fn killed_in_the_middle_of_a_window(transport: &str) {
    killed_in_the_middle_of(transport, "window", 64 << 20);
}

fn killed_in_the_middle_of_messages(transport: &str) {
    for bytes in [100, 16 << 20] {
        killed_in_the_middle_of(transport, "messages", bytes);
    }
}

fn killed_with_started_calls_under_way(transport: &str) {
    for bytes in [8, 1 << 20] {
        killed_in_the_middle_of(transport, "requests", bytes);
    }
}

/// The others wait for the stopped rank until the timeout of a call, and it stays silent.
fn stopped_with_started_calls_under_way(transport: &str) {
    let limit = timeout(transport);
    let seconds = limit.as_secs().to_string();
    for bytes in [8, 1 << 20] {
        let task = ["requests", &bytes.to_string()];
        let job = start(3, transport, &task, &[("RINGFOLD_TIMEOUT", &*seconds)]);
        job.wait_for("started");
        std::thread::sleep(Duration::from_millis(300));
        let stopped = Instant::now();
        job.0[2].signal(Signal::STOP);
        let (causes, last) = job.causes(2);
        all_report(&causes, &["rank 2"]);
        assert!(last - stopped < limit + SOON);
    }
}

fn killed_while_ranks_wait_for_any_sender(transport: &str) {
    for bytes in [100, 16 << 20] {
        killed_in_the_middle_of(transport, "any", bytes);
    }
}

/// The peers of a stopped rank wait for its messages until the timeout, and it stays silent.
fn stopped_in_the_middle_of_messages(transport: &str) {
    let limit = timeout(transport);
    let seconds = limit.as_secs().to_string();
    let job = start(3, transport, &["messages", "100"], &[("RINGFOLD_TIMEOUT", &*seconds)]);
    job.wait_for("started");
    std::thread::sleep(Duration::from_millis(300));
    let stopped = Instant::now();
    job.0[2].signal(Signal::STOP);
    let (causes, last) = job.causes(2);
    all_report(&causes, &["rank 2", "does not answer"]);
    assert!(last - stopped < limit + SOON);
}

fn killed_in_the_middle_of(transport: &str, what: &str, bytes: usize) {
    for victim in [2, 0] {
        let job = start(3, transport, &[what, &bytes.to_string()], &[]);
        killed_in_the_middle(&job, transport, victim);
    }
}

/// A rank is stopped while it stores into its peers' windows. The peers give up the call and reuse
/// their windows. The rank then resumes, and must not change them.
#[test]
fn a_window_stays_as_its_rank_left_it_after_a_failure() {
    ["refill", "refill-started"].into_iter().for_each(refill);
}

fn refill(task: &str) {
    let folder = Folder::new();
    let stop = folder.at("stop");
    let task = [task, &(64 << 20).to_string(), &stop];
    let job = start(2, "shm", &task, &[("RINGFOLD_TIMEOUT", "5")]);
    job.wait_for("started");
    std::thread::sleep(Duration::from_secs(1));
    job.0[1].signal(Signal::STOP);
    job.0[0].line("filled");
    job.0[1].signal(Signal::CONT);
    // It prints this only after its call has failed.
    job.0[1].line("filled");
    fs::write(&stop, "").unwrap();
    let changed = job.0[0].line("changed ");
    assert_eq!(changed, "0", "elements of rank 0's window changed after its call had failed");
    let failures = job.0.iter().map(|rank| rank.line("failed ")).collect::<Vec<_>>();
    let number = |failure: &String| {
        let (_, rest) = failure.split_once('#').unwrap();
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // Rank 1 may have been stopped at the end of the previous call.
    assert!(number(&failures[1]) <= number(&failures[0]), "{failures:?}");
}

/// Peers may still write to a window after a failure, so its rank must not read it.
#[test]
fn a_window_that_cannot_be_taken_from_its_peers_panics() {
    let bytes = (64 << 20).to_string();
    let job = start(2, "shm", &["refuse", &bytes], &[("RINGFOLD_TIMEOUT", "4")]);
    job.wait_for("started");
    job.0[1].signal(Signal::STOP);
    let why = job.0[0].line("refused ");
    assert!(why.contains("is lost") && why.contains(&bytes), "{why}");
}

fn an_abort_ends_the_calls_of_all_ranks(transport: &str) {
    let job = start(3, transport, &["abort"], &[]);
    let causes = job.lines("cause ");
    all_report(&causes, &["rank 1 gave up: on purpose"]);
}

/// The child inherits every connection of its parent, and outlives it.
fn a_death_is_noticed_while_a_child_of_the_rank_lives(transport: &str) {
    for parent in [1, 0] {
        let job = start(3, transport, &["forked", &parent.to_string()], &[]);
        let called = job.0[parent].line("child ");
        let (child, error) = called.split_once(' ').unwrap();
        assert!(error.contains("was forked"), "{error}");
        job.0[parent].line("dropped");
        std::thread::sleep(Duration::from_millis(300));
        assert!(job.0.iter().all(Job::has_no_output), "the job goes on");
        let child = Pid::from_raw(child.parse().unwrap()).unwrap();
        let killed = Instant::now();
        job.0[parent].signal(Signal::KILL);
        let (causes, last) = job.causes(parent);
        let lives = test_kill_process(child).is_ok();
        kill_process(child, Signal::KILL).ok();
        println!(
            "{transport}: the parent {parent} killed, all survivors fail after {:?}",
            last - killed
        );
        assert!(lives, "the child outlives its parent");
        all_report(&causes, &[&format!("the process of rank {parent} is gone")]);
        assert!(last - killed < SOON);
    }
}

fn a_window_on_one_rank_only_is_reported(transport: &str) {
    let job = start(3, transport, &["half"], &[("RINGFOLD_TIMEOUT", "5")]);
    let causes = job.lines("cause ");
    all_report(&causes, &["rank 1 called allreduce", "in window 1 from byte 0"]);
}

fn another_window_on_one_rank_is_reported(transport: &str) {
    let job = start(3, transport, &["other"], &[("RINGFOLD_TIMEOUT", "5")]);
    let causes = job.lines("cause ");
    let call = "called allreduce [f32 x 100000, sum] in window";
    let words = [format!("{call} 1 from byte 0"), format!("rank 1 {call} 2 from byte 0")];
    all_report(&causes, &[&words[0], &words[1]]);
}

fn another_range_on_one_rank_is_reported(transport: &str) {
    let job = start(3, transport, &["range"], &[("RINGFOLD_TIMEOUT", "5")]);
    let causes = job.lines("cause ");
    let call = "called allreduce [f32 x 50000, sum] in window 1 from byte";
    let words = [format!("{call} 0"), format!("rank 1 {call} 40")];
    all_report(&causes, &[&words[0], &words[1]]);
}

/// Through staging buffers, in calls of one piece and of many.
#[test]
fn killed_while_the_others_wait_for_signals() {
    let settings = [("RINGFOLD_ALGO", "allreduce:staged_one_shot,staged")];
    for (victim, bytes) in [(2, 64), (0, 4096), (1, 16 << 20)] {
        let job = start(4, "shm", &["allreduce", &bytes.to_string()], &settings);
        killed_in_the_middle(&job, "shm", victim);
    }
}

fn stopped_in_the_middle_of_a_call(transport: &str) {
    for victim in [1, 0] {
        let timeout = timeout(transport);
        let settings = [("RINGFOLD_TIMEOUT", &*timeout.as_secs().to_string())];
        let job = start(3, transport, &["allreduce", &(1 << 30).to_string()], &settings);
        job.wait_for("started");
        std::thread::sleep(Duration::from_millis(300));
        let stopped = Instant::now();
        job.0[victim].signal(Signal::STOP);
        let (causes, last) = job.causes(victim);
        println!(
            "{transport}: rank {victim} stopped, all survivors fail after {:?}",
            last - stopped
        );
        all_report(&causes, &[&format!("rank {victim}"), "not answer"]);
        assert!(last - stopped < timeout + SOON);
    }
}

fn different_calls_are_reported_with_their_ranks(transport: &str) {
    // By messages, and by a staging buffer, which the first call that needs it makes.
    for (count, times) in [(1000, 0), (1_000_000, 0), (1_000_000, 1), (1_000_000, 2)] {
        let task = ["differ", &count.to_string(), &times.to_string()];
        let begin = Instant::now();
        let job = start(4, transport, &task, &[("RINGFOLD_TIMEOUT", "50")]);
        let (mut causes, _) = job.causes(1);
        causes.push(job.0[1].line("cause "));
        assert!(begin.elapsed() < 3 * SOON, "before any timeout");
        let (call, all) =
            (format!("call #{}", times + 2), format!("allreduce [f32 x {count}, sum]"));
        all_report(&causes, &[&call, &all, "broadcast", "f64 x 10", "rank 1"]);
    }
}

fn a_rank_that_diverges_is_named(transport: &str) {
    // The others wait for its message, or it waits for theirs, or they are in a later call.
    for root in [1, 0, 2] {
        let task = ["part", "1000000", &root.to_string()];
        let begin = Instant::now();
        let job = start(4, transport, &task, &[("RINGFOLD_TIMEOUT", "50")]);
        let causes = job.lines("cause ");
        assert!(begin.elapsed() < 3 * SOON, "before any timeout");
        all_report(&causes, &["call #3", "rank 1 called allreduce [f32 x 1000000, sum]"]);
    }
}

#[test]
fn if_a_rank_has_no_memory_for_staging_all_do_without() {
    for (task, is_staged) in [("poor", false), ("rich", true)] {
        let job = start(3, "shm", &[task, "1000000"], &[]);
        for rank in &job.0 {
            assert_eq!(rank.line("sums "), "3 3");
            assert_eq!(rank.line("sums "), "3 3");
            assert_eq!(rank.line("by ").starts_with("staged"), is_staged, "{task}");
        }
    }
}

fn a_difference_without_a_wait_is_reported_on_leaving(transport: &str) {
    let job = start(3, transport, &["crossed"], &[]);
    let causes = job.lines("cause ");
    all_report(&causes, &["call #2", "rank 0 called broadcast", "rank 2 called", "root 1"]);
}

fn a_late_rank_is_named(transport: &str) {
    let settings = [("RINGFOLD_TIMEOUT", &*timeout(transport).as_secs().to_string())];
    let job = start(3, transport, &["late", "30"], &settings);
    let (causes, _) = job.causes(1);
    all_report(&causes, &["rank 1", "entered", "allreduce"]);
}

fn a_message_that_differs_is_the_cause_after_its_sender_has_left(transport: &str) {
    let of_type = "recv [12 bytes from rank 1, tag 5] of f32 met a message of 12 bytes of u32 with \
                   tag 5";
    let of_tag = "recv [12 bytes from rank 1, tag 5]: the rank has left the job, while a message \
                  of 12 bytes from rank 1 with tag 7 waited";
    for (tag, expected) in [("5", of_type), ("7", of_tag)] {
        let job = start(2, transport, &["letter", tag], &[]);
        let cause = job.0[0].line("cause ");
        assert!(cause.ends_with(&format!("failed: {expected}")), "{transport}: {cause}");
    }
}

/// Ranks of one host see the end of each other's processes. They do not wait `RETURN_MS` whether
/// the dead rank reconnects.
fn a_death_on_one_host_is_known_at_once(transport: &str) {
    // Before a failed call ends, the rank takes its memory from its peers. Emulated devices take
    // longer than the bound for those of eight ranks.
    let ranks = if transport == "rdma" { 3 } else { 8 };
    for bytes in ["8", "65536"] {
        for victim in [0, ranks / 2 + 1] {
            let takes = || {
                let job = start(ranks, transport, &["allreduce", bytes], &[]);
                job.wait_for("started");
                let killed = Instant::now();
                job.0[victim].signal(Signal::KILL);
                let (causes, last) = job.causes(victim);
                all_report(&causes, &[&format!("the process of rank {victim} is gone")]);
                last - killed
            };
            // The machine may be busy, so one of several tries counts.
            let is_quick = |_| {
                let took = takes();
                println!(
                    "{transport}: rank {victim} of {ranks} killed, known everywhere after {took:?}"
                );
                took < Duration::from_millis(limits::RETURN_MS)
            };
            assert!((0..5).any(is_quick), "no try was quick");
        }
    }
}

fn a_rank_that_exits_without_leaving_has_died(transport: &str) {
    let job = start(3, transport, &["exit"], &[]);
    let (causes, _) = job.causes(1);
    all_report(&causes, &["the process of rank 1 is gone"]);
}

fn unauthenticated_peers_do_not_disturb_a_job(transport: &str) {
    let job = start(3, transport, &["allreduce", "65536"], &[]);
    job.wait_for("started");
    let ports: Vec<u16> = job.0.iter().flat_map(|rank| listening(rank.id())).collect();
    // Over shared memory each rank listens for ranks that regroup, and rank 0 for those that
    // reconnect.
    assert!(!ports.is_empty(), "{transport}");
    assert!(transport != "shm" || ports.len() == 4, "{transport}: {ports:?}");
    let mut noise = Random::new(0x5eed);
    println!("ports {ports:?}");
    let mut held = Vec::new();
    let mut connected = 0;
    for port in ports {
        for round in 0..150 {
            let Ok(mut intruder) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            connected += 1;
            let garbage: Vec<u8> =
                (0..round * 7 % 300).map(|_| u8::try_from(noise.below(256)).unwrap()).collect();
            intruder.write_all(&garbage).ok();
            if round % 3 == 0 {
                held.push(intruder);
            } else if round % 3 == 1 {
                intruder.write_all(&[0xff; 64]).ok();
                intruder.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                // The intruder may get an answer or none.
                intruder.read_exact(&mut [0; 1]).ok();
            }
        }
    }
    assert_ne!(connected, 0, "{transport}");
    // The job still runs: the kill below ends it, not the intruders.
    assert!(job.0.iter().all(|rank| rank.has_no_output()), "a rank has failed already");
    job.0[2].signal(Signal::KILL);
    let (causes, _) = job.causes(2);
    all_report(&causes, &["the process of rank 2 is gone"]);
}

/// Returns the TCP ports on which a process listens, from `/proc`.
fn listening(pid: u32) -> Vec<u16> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let sockets: Vec<String> = fds
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|to| to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(String::from))
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = *fields.get(3)? == "0A" && sockets.iter().any(|s| s == fields[9]);
        listens.then(|| u16::from_str_radix(fields[1].rsplit(':').next()?, 16).ok())?
    };
    table.lines().skip(1).filter_map(port).collect()
}
