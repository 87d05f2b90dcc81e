//! Ranks that die or stop with calls under way in several groups, and groups that are made and
//! dropped again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::job::{SOON, start, timeout};

/// The ranks of the job. They are in two rows and two columns.
const RANKS: usize = 4;

pub(crate) fn killed_with_calls_in_several_groups(transport: &str) {
    for victim in [3, 0] {
        let words = |rank| format!("the process of rank {rank} is gone");
        struck(transport, victim, Signal::KILL, Duration::from_millis(300), SOON, &words);
    }
}

pub(crate) fn stopped_with_calls_in_several_groups(transport: &str) {
    for victim in [2, 0] {
        let words = |rank| format!("rank {rank}");
        let (after, limit) = (Duration::from_millis(300), timeout(transport) + SOON);
        struck(transport, victim, Signal::STOP, after, limit, &words);
    }
}

/// Ranks that die while groups are made. The others do not wait for them until the join timeout,
/// wherever the death meets them.
pub(crate) fn killed_while_groups_are_made(transport: &str) {
    for round in 0..6_usize {
        let victim = [2, 0][round % 2];
        let job = start(3, transport, &["joining"], &[]);
        job.wait_for("started");
        std::thread::sleep(Duration::from_millis(100 + 7 * round as u64));
        let killed = Instant::now();
        job.0[victim].signal(Signal::KILL);
        for rank in (0..3).filter(|rank| *rank != victim) {
            let error = job.0[rank].line_within("ended ", SOON);
            println!("{transport}: rank {rank} after {:?}: {error}", killed.elapsed());
        }
        let (causes, last) = job.causes(victim);
        let gone = format!("the process of rank {victim} is gone");
        assert!(causes.iter().all(|cause| *cause == gone), "{causes:?}");
        assert!(last - killed < SOON);
    }
}

/// Takes about half an hour:
///
/// ```text
/// cargo test --release -p ringfold-tests --test faults -- --ignored --nocapture five_hundred
/// ```
#[test]
#[ignore = "heavy: half an hour"]
fn five_hundred_strikes_at_random_moments() {
    for round in 0..500 {
        let transport = ["shm", "tcp", "shm,tcp"][round % 3];
        let victim = round / 3 % RANKS;
        let signal = if round % 2 == 0 { Signal::KILL } else { Signal::STOP };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let after = Duration::from_micros(u64::from(now.subsec_nanos()) % 60_000);
        let words = |rank| format!("rank {rank}");
        struck(transport, victim, signal, after, 3 * SOON, &words);
    }
}

/// Strikes a rank `after` a while. In each group of the victim all survivors get one cause, with
/// the rank that the victim has in the group. The groups without it go on.
fn struck(
    transport: &str,
    victim: usize,
    signal: Signal,
    after: Duration,
    limit: Duration,
    words: &dyn Fn(usize) -> String,
) {
    let limit_of_calls = timeout(transport).as_secs().to_string();
    let task = ["grouped", &victim.to_string(), &(1 << 16).to_string()];
    let job = start(RANKS, transport, &task, &[("RINGFOLD_TIMEOUT", &*limit_of_calls)]);
    job.wait_for("started");
    std::thread::sleep(after);
    let begin = Instant::now();
    job.0[victim].signal(signal);
    let mut causes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut sound = BTreeSet::new();
    for rank in (0..RANKS).filter(|rank| *rank != victim) {
        loop {
            let line = job.0[rank].line("");
            if line == "done" {
                break;
            }
            if let Some(group) = line.strip_prefix("sound ") {
                sound.insert((rank, group.to_owned()));
            } else if let Some(cause) = line.strip_prefix("cause ") {
                let (group, cause) = cause.split_once(": ").unwrap();
                causes.entry(group.to_owned()).or_default().push(cause.to_owned());
            }
        }
    }
    println!("{transport}: rank {victim} struck, all have ended after {:?}", begin.elapsed());
    assert!(begin.elapsed() < limit);
    let (row, column) = (victim / 2, victim % 2);
    let expected = BTreeMap::from([
        ("all".to_owned(), (victim, 3)),
        ("duplicate 3".to_owned(), (victim, 3)),
        (format!("split 1 color {row}"), (column, 1)),
        (format!("split 2 color {column}"), (row, 1)),
    ]);
    assert!(causes.keys().eq(expected.keys()), "{causes:?}");
    for (group, (rank, survivors)) in expected {
        let causes = &causes[&group];
        assert_eq!(causes.len(), survivors, "{group}: {causes:?}");
        assert!(causes.iter().all(|cause| *cause == causes[0]), "{group}: {causes:?}");
        assert!(causes[0].contains(&words(rank)), "{group}: {causes:?}");
    }
    let others = (0..RANKS).filter(|rank| *rank != victim).flat_map(|rank| {
        let [own_row, own_column] = [rank / 2, rank % 2];
        let in_row = (own_row != row).then(|| format!("split 1 color {own_row}"));
        let in_column = (own_column != column).then(|| format!("split 2 color {own_column}"));
        in_row.into_iter().chain(in_column).map(move |group| (rank, group))
    });
    assert_eq!(sound, others.collect(), "groups without the victim");
}

/// Every rank holds no more descriptors and less than a megabyte more at the end.
pub(crate) fn churn(groups: usize, rounds: usize, limit: Duration) {
    let task = ["churn", &groups.to_string(), &rounds.to_string()];
    let begin = Instant::now();
    let job = start(8, "shm,tcp", &task, &[]);
    for (rank, process) in job.0.iter().enumerate() {
        let held = |_| -> [usize; 2] {
            let line = process.line_within("held ", limit);
            println!("rank {rank}: {line}");
            let mut words = line.split(' ').map_while(|word| word.parse().ok());
            [words.next().unwrap(), words.next().unwrap()]
        };
        let all: Vec<_> = (0..10).map(held).collect();
        // The first rounds fill caches, the pools of the allocator, and the table of sockets that
        // children of `fork` close.
        let (early, last) = (all[1], all[9]);
        assert!(last[0] <= early[0], "rank {rank}: {early:?} {last:?} descriptors");
        assert!(last[1] < early[1] + 1024, "rank {rank}: {early:?} {last:?} kilobytes");
        process.line("done");
    }
    println!("{groups} groups of 8 ranks, {rounds} times, in {:?}", begin.elapsed());
}

#[test]
fn groups_leave_nothing_behind() {
    churn(10, 20, Duration::from_secs(120));
}

/// Takes a quarter of an hour:
///
/// ```text
/// cargo test --release -p ringfold-tests --test faults -- --ignored --nocapture a_hundred_groups
/// ```
#[test]
#[ignore = "heavy: a quarter of an hour"]
fn a_hundred_groups_a_thousand_times_leave_nothing_behind() {
    churn(100, 1000, Duration::from_secs(7200));
}

/// Prints the time of a split of 64 ranks into 8 groups:
///
/// ```text
/// cargo test --release -p ringfold-tests --test faults -- --ignored --nocapture sixty_four
/// ```
#[test]
#[ignore = "a measurement, for an idle machine"]
fn sixty_four_ranks_split_into_eight_groups() {
    let job = start(64, "shm,tcp", &["split", "8", "9"], &[]);
    let mut times: Vec<u64> = (0..9).map(|_| job.0[0].line("split ").parse().unwrap()).collect();
    times.sort_unstable();
    println!("64 ranks split into 8 groups: median {} us of {times:?}", times[4]);
    assert!(times[4] < 300_000, "{times:?}");
}
