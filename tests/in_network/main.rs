//! Calls over aggregators that run as processes, which tests kill and stop at random moments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "times, for people")]

mod aggregator;
mod members;
mod trees;

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_harness::{Aggregator, Home, IN_NETWORK, Job, Outcome};
use rustix::process::Signal;

/// The deadline of a job, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Hosts for which ranks of one machine stand.
const HOSTS: usize = 3;

/// A job of ranks, each on a host of its own, that use these aggregators.
struct Ranks<'a> {
    hosts: usize,
    home: &'a Home,
    /// `RINGFOLD_AGGREGATORS`.
    aggregators: &'a str,
}

impl Ranks<'_> {
    fn run(&self, task: &[&str]) -> Command {
        self.home.ranks(self.hosts, self.aggregators, task)
    }
}

/// Three ranks that use an aggregator.
fn ranks<'a>(home: &'a Home, aggregator: &'a Aggregator) -> Ranks<'a> {
    Ranks { hosts: HOSTS, home, aggregators: &aggregator.at }
}

/// The bits of all rounds, which must be the same in each, by rank.
fn bits(outcome: &Outcome, hosts: usize, rounds: usize) -> BTreeMap<String, String> {
    assert!(outcome.status.success(), "{outcome:?}");
    let mut bits = BTreeMap::new();
    let mut count = 0;
    for line in outcome.stdout.lines() {
        let Some(line) = line.strip_prefix("bits ") else { continue };
        let (rank, digest) = line.split_once(' ').unwrap();
        let first = bits.entry(rank.to_owned()).or_insert_with(|| digest.to_owned());
        assert_eq!(first, digest, "rank {rank} has other bits: {outcome:?}");
        count += 1;
    }
    assert_eq!(count, hosts * rounds, "{outcome:?}");
    bits
}

/// Waits for the first round of a job, calls `act`, and waits for the job's end. Returns the
/// outcome and the time since the first round.
fn after_first_round(job: Job, act: impl FnOnce()) -> (Outcome, Duration) {
    job.wait_for_line(DEADLINE, |line| line.starts_with("bits "));
    let began = Instant::now();
    act();
    let outcome = job.finish(DEADLINE);
    (outcome, began.elapsed())
}

/// Starts some rounds, and interrupts an aggregator some time after the first. Returns the bits,
/// and the time since the first round.
fn interrupted(
    ranks: &Ranks<'_>,
    aggregator: &Aggregator,
    (signal, after): (Signal, Duration),
) -> (BTreeMap<String, String>, Duration) {
    let mut command = ranks.run(&["bits", &ROUNDS.to_string()]);
    let job = Job::start(command.env("RINGFOLD_DEBUG", "WARN"));
    let (outcome, took) = after_first_round(job, || {
        thread::sleep(after);
        aggregator.job.signal(signal);
    });
    assert!(outcome.stderr.contains("is given up"), "it was not in use: {outcome:?}");
    (bits(&outcome, ranks.hosts, ROUNDS), took)
}

/// Rounds of a job whose aggregator is interrupted.
const ROUNDS: usize = 3;

/// A time within which a job of some rounds is in its calls.
const EARLY: Duration = Duration::from_millis(300);

/// A moment within this time, other in each run.
fn moment(within: Duration) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    within.mul_f64(f64::from(now.subsec_nanos() % 1_000_000) / 1e6)
}

/// The bits of ranks that combine all chunks themselves, and the time since the first round. Their
/// aggregator is killed before the calls, after the ranks have joined.
fn own_steps(
    ranks: &Ranks<'_>,
    aggregator: &Aggregator,
    rounds: usize,
) -> (BTreeMap<String, String>, Duration) {
    let job = Job::start(&mut ranks.run(&["bits", &rounds.to_string(), "2"]));
    job.wait_for_line(DEADLINE, |line| line == "started");
    aggregator.job.signal(Signal::KILL);
    let (outcome, took) = after_first_round(job, || ());
    (bits(&outcome, ranks.hosts, rounds), took)
}

#[test]
fn all_types_and_operations_have_the_bits_of_the_ranks_own_steps() {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let ranks = ranks(&home, &aggregator);
    let with = Job::start(&mut ranks.run(&["bits", "1"])).finish(DEADLINE);
    assert_eq!(own_steps(&ranks, &aggregator, 1).0, bits(&with, HOSTS, 1));
}

/// Interrupts aggregators at random moments, and compares the bits with those of the ranks' own
/// steps. Prints how much longer a job takes than one whose ranks combine all chunks themselves.
fn interrupted_often(times: usize, signal: Signal) {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let whole = Job::start(&mut ranks(&home, &aggregator).run(&["bits", &ROUNDS.to_string()]));
    let (_, whole) = after_first_round(whole, || ());
    let (wanted, own) = own_steps(&ranks(&home, &aggregator), &aggregator, ROUNDS);
    let mut beyond = Vec::new();
    for _ in 0..times {
        let aggregator = home.aggregator(&[]);
        let after = moment(whole / 3);
        let (bits, took) = interrupted(&ranks(&home, &aggregator), &aggregator, (signal, after));
        assert_eq!(bits, wanted, "{signal:?} after {after:?}");
        beyond.push(took.saturating_sub(own));
    }
    beyond.sort_unstable();
    let (median, most) = (beyond[times / 2], beyond[times - 1]);
    println!(
        "{times} x {signal:?}: own steps take {own:?}, with an aggregator {whole:?}; jobs take \
         {median:?} longer than by own steps, {most:?} at most"
    );
}

#[test]
fn killed_aggregators_change_no_bits() {
    interrupted_often(3, Signal::KILL);
}

#[test]
fn stopped_aggregators_change_no_bits() {
    interrupted_often(2, Signal::STOP);
}

/// Turns of two kills and a stop, unless `RINGFOLD_TEST_TURNS` at compile time says otherwise.
const TURNS: usize = 50;

#[test]
#[ignore = "takes minutes"]
fn a_hundred_kills_and_fifty_stops() {
    let turns = option_env!("RINGFOLD_TEST_TURNS")
        .map_or(TURNS, |turns| turns.parse().expect("RINGFOLD_TEST_TURNS is a number"));
    interrupted_often(2 * turns, Signal::KILL);
    interrupted_often(turns, Signal::STOP);
}

/// The rest of a job goes on without an aggregator that was started anew, with one line of the log.
/// The next job uses it.
#[test]
fn a_new_aggregator_serves_the_next_communicator() {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let first = ranks(&home, &aggregator);
    let mut command = first.run(&["bits", &ROUNDS.to_string()]);
    let job = Job::start(command.env("RINGFOLD_DEBUG", "WARN"));
    job.wait_for_line(DEADLINE, |line| line.starts_with("bits "));
    let place = aggregator.kill();
    let aggregator = home.aggregator(&["--listen", &place]);
    let outcome = job.finish(DEADLINE);
    let without = bits(&outcome, HOSTS, ROUNDS);
    assert_eq!(outcome.stderr.matches("is given up").count(), 1, "{outcome:?}");
    assert!(home.chunks(&place).is_empty(), "the job uses the new aggregator");
    let job = Job::start(&mut ranks(&home, &aggregator).run(&["bits", "2"]));
    job.wait_for_line(DEADLINE, |line| line.starts_with("bits "));
    assert!(home.chunks(&place).iter().all(|chunks| *chunks > 100), "the next job does not use it");
    assert_eq!(bits(&job.finish(DEADLINE), HOSTS, 2), without);
}

#[test]
fn require_names_the_reason_on_every_rank_and_auto_goes_on() {
    let home = Home::new();
    let small = home.aggregator(&["--memory", "64K"]);
    let ranks = ranks(&home, &small);
    let refused = Job::start(&mut ranks.run(&["bits", "1"])).finish(DEADLINE);
    assert!(!refused.status.success(), "{refused:?}");
    let named = |line: &&str| line.contains("RINGFOLD_INNETWORK=require cannot be met");
    let lines: Vec<_> =
        refused.stderr.lines().chain(refused.stdout.lines()).filter(named).collect();
    assert!(lines.len() >= HOSTS && lines.iter().all(|it| it.contains("refused")), "{refused:?}");
    let mut auto = ranks.run(&["bits", "1"]);
    let auto = Job::start(auto.env("RINGFOLD_INNETWORK", "auto")).finish(DEADLINE);
    bits(&auto, HOSTS, 1);
    let logged = auto.stderr.matches("no in-network reduction by these aggregators").count();
    assert_eq!(logged, 1, "{auto:?}");
}

#[test]
fn another_site_secret_is_refused() {
    let [one, other] = [(); 2].map(|()| Home::new());
    let aggregator = one.aggregator(&[]);
    drop(other.aggregator(&[]));
    let refused = Job::start(&mut ranks(&other, &aggregator).run(&["bits", "1"])).finish(DEADLINE);
    assert!(!refused.status.success(), "{refused:?}");
    let all = format!("{}{}", refused.stdout, refused.stderr);
    assert!(all.contains("holds another site secret"), "{refused:?}");
    // Both have the secret of one file.
    let secret = one.path().join(".ringfold/site-secret");
    let shared = ["--site-secret-file", secret.to_str().unwrap(), "--threads", "1"];
    let aggregator = other.aggregator(&shared);
    let taken = Job::start(&mut ranks(&one, &aggregator).run(&["bits", "1"])).finish(DEADLINE);
    bits(&taken, HOSTS, 1);
}

#[test]
fn a_wrong_setting_is_an_error_of_every_rank() {
    let home = Home::new();
    let ranks = Ranks { hosts: HOSTS, home: &home, aggregators: "/no/such/file" };
    let mut auto = ranks.run(&["bits", "1"]);
    let outcome = Job::start(auto.env("RINGFOLD_INNETWORK", "auto")).finish(DEADLINE);
    assert!(!outcome.status.success(), "{outcome:?}");
    let all = format!("{}{}", outcome.stdout, outcome.stderr);
    let lines = all.lines().filter(|it| it.contains("RINGFOLD_AGGREGATORS: /no/such/file"));
    assert!(lines.count() >= HOSTS, "{outcome:?}");
}
