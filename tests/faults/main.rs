//! What survivors get when a rank dies, falls silent, differs or is late, over every transport: the
//! same typed verdict on each of them, in bounded time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "times, for people")]

mod processes;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use processes::{Job, Process};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The tests named, over each transport: as in `tcp::killed_in_the_middle_of_a_window`.
macro_rules! over_each_transport {
    ($($test:ident)*) => {
        over!(shm, true, $($test)*);
        over!(tcp, true, $($test)*);
        // Where there are devices: `tests/rdma` runs these in a virtual machine.
        over!(rdma, !ringfold_tests::rdma::hosts().is_empty(), $($test)*);
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
    a_window_on_one_rank_and_none_on_the_others_is_told
    another_window_on_one_rank_is_told
    a_rank_that_gives_up_ends_its_own_call_and_all_others
    another_range_on_one_rank_is_told
    stopped_in_the_middle_of_a_call
    ranks_that_call_different_things_are_told_who_called_what
    a_rank_that_goes_its_own_way_is_told_so
    what_differed_and_kept_nobody_waiting_is_told_to_all_who_leave
    a_rank_that_does_not_come_is_named
    a_rank_that_exits_without_a_word_has_died
    a_death_is_noticed_though_a_child_of_the_rank_lives
    strangers_on_any_port_cost_nothing
}

/// Far beyond the bound that is promised for a death (1 s), so that a loaded machine does not fail
/// the test; the time itself is printed.
const SOON: Duration = Duration::from_secs(10);

/// How long a call may take: the first one, too, though it begins with devices being made ready,
/// which takes seconds where the processor is emulated.
fn timeout(transport: &str) -> Duration {
    Duration::from_secs(if transport == "rdma" { 5 } else { 2 })
}

fn all_say(verdicts: &[String], words: &[&str]) {
    for verdict in verdicts {
        assert_eq!(verdict, &verdicts[0], "survivors agree");
        assert!(words.iter().all(|word| verdict.contains(word)), "{verdict:?} names {words:?}");
    }
}

/// Kills a rank some time after it began to call; the others soon say the same.
fn killed_in_the_middle(job: &Job, transport: &str, victim: usize) {
    job.wait_for("started");
    std::thread::sleep(Duration::from_millis(300));
    let killed = Instant::now();
    job.ranks[victim].signal(Signal::KILL);
    let (verdicts, last) = job.verdicts(victim);
    println!("{transport}: rank {victim} killed, all know after {:?}", last - killed);
    all_say(&verdicts, &[&format!("the process of rank {victim} is gone")]);
    assert!(last - killed < SOON);
}

fn killed_in_the_middle_of_a_gibibyte(transport: &str) {
    killed_in_the_middle_of(transport, "allreduce", 1 << 30);
}

/// Long messages, which lie in the victim's memory until they are read there.
#[test]
fn killed_in_the_middle_of_an_offer() {
    let forced = [("RINGFOLD_SHM_CMA", "64K"), ("RINGFOLD_CHUNK", "1M")];
    let attached = [("RINGFOLD_ALGO", "broadcast:attached"), ("RINGFOLD_CHUNK", "1M")];
    let all = [("allreduce", forced), ("broadcast", attached)];
    for ((what, settings), victim) in all.into_iter().flat_map(|it| [(it, 2), (it, 0)]) {
        let job = Job::start(3, "shm", &[what, &(256 << 20).to_string()], &settings);
        killed_in_the_middle(&job, "shm", victim);
    }
}

fn killed_in_the_middle_of_a_window(transport: &str) {
    killed_in_the_middle_of(transport, "window", 64 << 20);
}

fn killed_in_the_middle_of(transport: &str, what: &str, bytes: usize) {
    for victim in [2, 0] {
        let job = Job::start(3, transport, &[what, &bytes.to_string()], &[]);
        killed_in_the_middle(&job, transport, victim);
    }
}

/// A rank is stopped while it stores into the windows of others, which give the call up, and goes
/// on with it when they use their windows for something else.
#[test]
fn a_window_stays_as_its_rank_left_it_after_a_failure() {
    let stop = std::env::temp_dir().join(format!("ringfold-refill-{}", std::process::id()));
    let task = ["refill", &(64 << 20).to_string(), stop.to_str().unwrap()];
    let job = Job::start(2, "shm", &task, &[("RINGFOLD_TIMEOUT", "5")]);
    job.wait_for("started");
    std::thread::sleep(Duration::from_secs(1));
    job.ranks[1].signal(Signal::STOP);
    job.ranks[0].line("filled");
    job.ranks[1].signal(Signal::CONT);
    // It says so only if its call returned the error.
    job.ranks[1].line("filled");
    fs::write(&stop, "").unwrap();
    let changed = job.ranks[0].line("changed ");
    fs::remove_file(&stop).unwrap();
    assert_eq!(changed, "0", "elements of rank 0's window changed after its call had failed");
    let failures = job.ranks.iter().map(|rank| rank.line("failed ")).collect::<Vec<_>>();
    let number = |failure: &String| {
        let (_, rest) = failure.split_once('#').unwrap();
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // Rank 1 may have been stopped at the end of the call before.
    assert!(number(&failures[1]) <= number(&failures[0]), "{failures:?}");
}

/// Peers may still write to such a window, so its rank must not read it.
#[test]
fn a_window_that_cannot_be_taken_from_its_peers_panics() {
    let bytes = (64 << 20).to_string();
    let job = Job::start(2, "shm", &["refuse", &bytes], &[("RINGFOLD_TIMEOUT", "4")]);
    job.wait_for("started");
    job.ranks[1].signal(Signal::STOP);
    let why = job.ranks[0].line("refused ");
    assert!(why.contains("is lost") && why.contains(&bytes), "{why}");
}

fn a_rank_that_gives_up_ends_its_own_call_and_all_others(transport: &str) {
    let job = Job::start(3, transport, &["abort"], &[]);
    let verdicts: Vec<_> = job.ranks.iter().map(|rank| rank.line("verdict ")).collect();
    all_say(&verdicts, &["rank 1 gave up: on purpose"]);
}

/// The child has every connection of its parent, and outlives it.
fn a_death_is_noticed_though_a_child_of_the_rank_lives(transport: &str) {
    for parent in [1, 0] {
        let job = Job::start(3, transport, &["forked", &parent.to_string()], &[]);
        let called = job.ranks[parent].line("child ");
        let (child, error) = called.split_once(' ').unwrap();
        assert!(error.contains("was forked"), "{error}");
        job.ranks[parent].line("dropped");
        std::thread::sleep(Duration::from_millis(300));
        assert!(job.ranks.iter().all(Process::says_nothing), "the job goes on");
        let child = Pid::from_raw(child.parse().unwrap()).unwrap();
        let killed = Instant::now();
        job.ranks[parent].signal(Signal::KILL);
        let (verdicts, last) = job.verdicts(parent);
        let lives = test_kill_process(child).is_ok();
        kill_process(child, Signal::KILL).ok();
        println!("{transport}: the parent {parent} killed, all know after {:?}", last - killed);
        assert!(lives, "the child outlives its parent");
        all_say(&verdicts, &[&format!("the process of rank {parent} is gone")]);
        assert!(last - killed < SOON);
    }
}

fn a_window_on_one_rank_and_none_on_the_others_is_told(transport: &str) {
    let job = Job::start(3, transport, &["half"], &[("RINGFOLD_TIMEOUT", "5")]);
    let verdicts: Vec<_> = job.ranks.iter().map(|rank| rank.line("verdict ")).collect();
    all_say(&verdicts, &["rank 1 called allreduce", "in window 1 from byte 0"]);
}

fn another_window_on_one_rank_is_told(transport: &str) {
    let job = Job::start(3, transport, &["other"], &[("RINGFOLD_TIMEOUT", "5")]);
    let verdicts: Vec<_> = job.ranks.iter().map(|rank| rank.line("verdict ")).collect();
    let call = "called allreduce [f32 x 100000, sum] in window";
    let words = [format!("{call} 1 from byte 0"), format!("rank 1 {call} 2 from byte 0")];
    all_say(&verdicts, &[&words[0], &words[1]]);
}

fn another_range_on_one_rank_is_told(transport: &str) {
    let job = Job::start(3, transport, &["range"], &[("RINGFOLD_TIMEOUT", "5")]);
    let verdicts: Vec<_> = job.ranks.iter().map(|rank| rank.line("verdict ")).collect();
    let call = "called allreduce [f32 x 50000, sum] in window 1 from byte";
    let words = [format!("{call} 0"), format!("rank 1 {call} 40")];
    all_say(&verdicts, &[&words[0], &words[1]]);
}

/// By stages, in calls of one piece and of many.
#[test]
fn killed_while_the_others_hear_of_each_other() {
    let settings = [("RINGFOLD_ALGO", "allreduce:staged_one_shot,staged")];
    for (victim, bytes) in [(2, 64), (0, 4096), (1, 16 << 20)] {
        let job = Job::start(4, "shm", &["allreduce", &bytes.to_string()], &settings);
        killed_in_the_middle(&job, "shm", victim);
    }
}

fn stopped_in_the_middle_of_a_call(transport: &str) {
    for victim in [1, 0] {
        let timeout = timeout(transport);
        let settings = [("RINGFOLD_TIMEOUT", &*timeout.as_secs().to_string())];
        let job = Job::start(3, transport, &["allreduce", &(1 << 30).to_string()], &settings);
        job.wait_for("started");
        std::thread::sleep(Duration::from_millis(300));
        let stopped = Instant::now();
        job.ranks[victim].signal(Signal::STOP);
        let (verdicts, last) = job.verdicts(victim);
        println!("{transport}: rank {victim} stopped, all know after {:?}", last - stopped);
        all_say(&verdicts, &[&format!("rank {victim}"), "not answer"]);
        assert!(last - stopped < timeout + SOON);
    }
}

fn ranks_that_call_different_things_are_told_who_called_what(transport: &str) {
    // By messages, and in shared memory by a stage, which is made for the first call that needs it.
    for (count, times) in [(1000, 0), (1_000_000, 0), (1_000_000, 1), (1_000_000, 2)] {
        let task = ["differ", &count.to_string(), &times.to_string()];
        let begin = Instant::now();
        let job = Job::start(4, transport, &task, &[("RINGFOLD_TIMEOUT", "50")]);
        let (mut verdicts, _) = job.verdicts(1);
        verdicts.push(job.ranks[1].line("verdict "));
        assert!(begin.elapsed() < 3 * SOON, "before anyone's time is up");
        let (call, all) =
            (format!("call #{}", times + 2), format!("allreduce [f32 x {count}, sum]"));
        all_say(&verdicts, &[&call, &all, "broadcast", "f64 x 10", "rank 1"]);
    }
}

fn a_rank_that_goes_its_own_way_is_told_so(transport: &str) {
    // Others wait for what it sends, or it for what they do, or they are in a call after that.
    for root in [1, 0, 2] {
        let task = ["part", "1000000", &root.to_string()];
        let begin = Instant::now();
        let job = Job::start(4, transport, &task, &[("RINGFOLD_TIMEOUT", "50")]);
        let verdicts: Vec<_> = job.ranks.iter().map(|rank| rank.line("verdict ")).collect();
        assert!(begin.elapsed() < 3 * SOON, "before anyone's time is up");
        all_say(&verdicts, &["call #3", "rank 1 called allreduce [f32 x 1000000, sum]"]);
    }
}

#[test]
fn where_a_rank_has_no_memory_for_a_stage_all_do_without() {
    for (task, is_staged) in [("poor", false), ("rich", true)] {
        let job = Job::start(3, "shm", &[task, "1000000"], &[]);
        for rank in &job.ranks {
            assert_eq!(rank.line("sums "), "3 3");
            assert_eq!(rank.line("sums "), "3 3");
            assert_eq!(rank.line("by ").starts_with("staged"), is_staged, "{task}");
        }
    }
}

fn what_differed_and_kept_nobody_waiting_is_told_to_all_who_leave(transport: &str) {
    let job = Job::start(3, transport, &["crossed"], &[]);
    let verdicts: Vec<_> = job.ranks.iter().map(|rank| rank.line("verdict ")).collect();
    all_say(&verdicts, &["call #2", "rank 0 called broadcast", "rank 2 called", "root 1"]);
}

fn a_rank_that_does_not_come_is_named(transport: &str) {
    let settings = [("RINGFOLD_TIMEOUT", &*timeout(transport).as_secs().to_string())];
    let job = Job::start(3, transport, &["late", "30"], &settings);
    let (verdicts, _) = job.verdicts(1);
    all_say(&verdicts, &["rank 1", "entered", "allreduce"]);
}

fn a_rank_that_exits_without_a_word_has_died(transport: &str) {
    let job = Job::start(3, transport, &["exit"], &[]);
    let (verdicts, _) = job.verdicts(1);
    all_say(&verdicts, &["the process of rank 1 is gone"]);
}

fn strangers_on_any_port_cost_nothing(transport: &str) {
    let job = Job::start(3, transport, &["allreduce", "65536"], &[]);
    job.wait_for("started");
    let ports: Vec<u16> = job.ranks.iter().flat_map(|rank| listening(rank.id())).collect();
    // Over shared memory rank 0 alone listens, for ranks that come back.
    assert!(!ports.is_empty(), "{transport}");
    assert!(transport != "shm" || ports.len() == 1, "{transport}: {ports:?}");
    let mut noise = Noise(0x5eed);
    println!("seed {:#x}, ports {ports:?}", noise.0);
    let mut held = Vec::new();
    let mut connected = 0;
    for port in ports {
        for round in 0..150 {
            let Ok(mut stranger) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            connected += 1;
            let garbage: Vec<u8> = (0..round * 7 % 300).map(|_| noise.byte()).collect();
            stranger.write_all(&garbage).ok();
            if round % 3 == 0 {
                held.push(stranger);
            } else if round % 3 == 1 {
                stranger.write_all(&[0xff; 64]).ok();
                stranger.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                // Whatever it hears, if anything.
                stranger.read_exact(&mut [0; 1]).ok();
            }
        }
    }
    assert_ne!(connected, 0, "{transport}");
    // The job still runs: it dies of what we do next, not of what we did before.
    assert!(job.ranks.iter().all(|rank| rank.says_nothing()), "a rank has failed already");
    job.ranks[2].signal(Signal::KILL);
    let (verdicts, _) = job.verdicts(2);
    all_say(&verdicts, &["the process of rank 2 is gone"]);
}

/// Bytes without a pattern.
struct Noise(u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.to_le_bytes()[7]
    }
}

/// The TCP ports that a process listens on, by what `/proc` says of its sockets.
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
