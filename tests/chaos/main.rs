//! Kills and stops random ranks at random moments of random calls, and oversubscribes the CPUs with
//! healthy ranks. The tests take half an hour, so they are ignored by default:
//!
//! ```text
//! cargo test --release -p ringfold-tests --test chaos -- --ignored --nocapture --test-threads 1
//! ```
//!
//! Each test prints its commit, seed and counts, and the times from a blow to the last survivor's
//! error. `RINGFOLD_TEST_SEED`, at compile time, repeats a run, except for its timing.
//! `RINGFOLD_TEST_ROUNDS` sets the number of blows of each test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringfold_harness::{Home, Namespaces, Random, Ranks, program, random};
use rustix::process::Signal;

/// Far beyond the promised bound of 1 s, for loaded machines. The test prints the actual times.
const SOON: Duration = Duration::from_secs(20);

/// The timeout of a call, after which a stopped rank is a failure.
const TIMEOUT: Duration = Duration::from_secs(2);

#[test]
#[ignore = "heavy: minutes"]
fn eight_ranks_over_shm() {
    strike(8, "shm", 200);
}

#[test]
#[ignore = "heavy: minutes"]
fn eight_ranks_over_tcp() {
    strike(8, "tcp", 200);
}

#[test]
#[ignore = "heavy: minutes"]
fn sixty_four_ranks_over_shm() {
    strike(64, "shm", 50);
}

#[test]
#[ignore = "heavy: minutes"]
fn sixty_four_ranks_over_tcp() {
    strike(64, "tcp", 50);
}

/// Each rank has 100 started calls under way.
#[test]
#[ignore = "heavy: minutes"]
fn started_calls_under_way() {
    for transport in ["shm", "tcp"] {
        let bytes = |random: &mut Random| ["8", "20000", "1000000"][random.below(3)].to_owned();
        strike_in(3, transport, 250, |random| vec!["requests".to_owned(), bytes(random)]);
    }
}

/// Four ranks for each CPU make 100,000 calls with a timeout of two seconds, and none fails.
#[test]
#[ignore = "heavy: minutes"]
fn healthy_ranks_do_not_fail() {
    let ranks = 4 * std::thread::available_parallelism().unwrap().get();
    for transport in ["shm", "tcp"] {
        let seed = random::seed();
        let begun = Instant::now();
        let (home, calls) = (Home::new(), "100000");
        let job = start(&home, ranks, transport, &["mixed", &seed.to_string(), calls]);
        for (rank, it) in job.finish(Duration::from_secs(1200)).into_iter().enumerate() {
            assert_eq!(it.stdout, "started\ndone\n", "rank {rank} of {ranks} over {transport}");
        }
        println!("{transport}: {calls} calls of {ranks} ranks in {:.1?}", begun.elapsed());
    }
}

#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_eight_ranks_over_shm() {
    survive(8, "shm", 300);
}

#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_eight_ranks_over_tcp() {
    survive(8, "tcp", 300);
}

#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_eight_ranks_on_two_hosts() {
    survive(8, "shm,tcp", 300);
}

#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_sixty_four_ranks_over_shm() {
    survive(64, "shm", 50);
}

#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_sixty_four_ranks_on_two_hosts() {
    survive(64, "shm,tcp", 50);
}

/// A hundred ranks and more on a CPU.
#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_256_ranks() {
    for transport in ["shm", "tcp"] {
        survive(256, transport, 20);
    }
}

/// Four hosts with two ranks each. The network parts between random hosts, and in a tenth of the
/// rounds a rank dies too. The side with more than half of the ranks goes on, and no other.
#[test]
#[ignore = "heavy: minutes"]
fn survivors_of_a_parted_network() {
    const RANKS: usize = 8;
    let rounds = option_env!("RINGFOLD_TEST_ROUNDS").map_or(50, |it| it.parse().unwrap());
    println!("commit {}", commit());
    let mut random = Random::new(random::seed());
    let (mut halves, mut times) = (0, Vec::new());
    for round in 0..rounds {
        let Some(hosts) = Namespaces::star("10.78.0", 4) else { return };
        let (home, apart) = (Home::new(), 1 + random.below(14));
        let stop = home.path().join("stop");
        let job = Ranks::of("ip", RANKS, |rank, command| {
            let host = hosts.name(&format!("h{}", rank / 2));
            // A side must not see that the processes of the other one have ended.
            command.args(["netns", "exec", &*host, "unshare", "--pid", "--fork"]);
            command.arg("--kill-child").arg(program::own("rank")).arg("survive");
            command.arg(&stop).env("MASTER_ADDR", "10.78.0.1");
            command.env("RINGFOLD_HOSTID", &host).env("RINGFOLD_TRANSPORT", "shm,tcp");
            command.env("RINGFOLD_TIMEOUT", TIMEOUT.as_secs().to_string());
            command.env("HOME", home.path()).env("TMPDIR", home.path());
        });
        job.wait_for("started");
        hosts.ip("-n @s link add br1 type bridge");
        hosts.ip("-n @s link set br1 up");
        sleep(Duration::from_micros(random.below(60_000) as u64));
        let struck = Instant::now();
        for host in (0..4).filter(|host| apart >> host & 1 == 1) {
            hosts.ip(&format!("-n @s link set p{host} master br1"));
        }
        let victim = (round % 10 == 4).then(|| random.below(RANKS));
        if let Some(victim) = victim {
            job.0[victim].signal(Signal::KILL);
        }
        let what = format!("round {round}, hosts {apart:b} apart, rank {victim:?} killed");
        let mut is_over = true;
        for side in 0..2 {
            let is_member = |rank: &usize| apart >> (rank / 2) & 1 == side && victim != Some(*rank);
            let members: Vec<_> = (0..RANKS).filter(is_member).collect();
            let list: Vec<_> = members.iter().map(ToString::to_string).collect();
            let group = format!("epoch 1 of {} in ", list.join(" "));
            let goes_on = 2 * members.len() > RANKS;
            is_over &= !goes_on;
            for rank in members {
                let ends = |line: &str| line.starts_with("epoch ") || line.starts_with("failed ");
                let end = job.0[rank].wait_for_line(2 * SOON, ends);
                let is_right =
                    if goes_on { end.starts_with(&group) } else { end.contains("have come") };
                assert!(is_right, "{what}: rank {rank}: {end}");
            }
        }
        halves += usize::from(is_over);
        times.push(struck.elapsed());
        fs::write(&stop, "").unwrap();
        drop(job.finish(SOON));
    }
    println!("{halves} of {rounds} networks have parted so that no side goes on");
    report("8 ranks on 4 hosts", "is in the new group, or knows that there is none,", times);
}

/// Starts ranks with a home and a folder for temporary files of their own.
fn start<S: AsRef<str>>(home: &Home, size: usize, transport: &str, task: &[S]) -> Ranks {
    Ranks::start(size, |rank, command| {
        command.args(task.iter().map(AsRef::as_ref)).env("RINGFOLD_TRANSPORT", transport);
        if transport == "shm,tcp" {
            command.env("RINGFOLD_HOSTID", format!("host{}", rank % 2));
        }
        command.env("RINGFOLD_TIMEOUT", TIMEOUT.as_secs().to_string());
        command.env("HOME", home.path()).env("TMPDIR", home.path());
    })
}

/// Strikes in random calls, as [`strike_in`] does.
fn strike(ranks: usize, transport: &str, rounds: usize) {
    strike_in(ranks, transport, rounds, |random| {
        ["mixed".to_owned(), random.below(1 << 30).to_string(), "0".to_owned()].into()
    });
}

/// Kills or stops one rank of a new job in each round. Every other rank must get the same cause,
/// which names that rank, and no file may be left behind.
fn strike_in(
    ranks: usize,
    transport: &str,
    rounds: usize,
    task: impl Fn(&mut Random) -> Vec<String>,
) {
    let rounds = option_env!("RINGFOLD_TEST_ROUNDS").map_or(rounds, |it| it.parse().unwrap());
    println!("commit {}", commit());
    let mut random = Random::new(random::seed());
    let (mut deaths, mut silences) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let victim = if round % 4 == 0 { 0 } else { random.below(ranks) };
        let is_kill = random.below(2) == 0;
        let task = task(&mut random);
        let home = Home::new();
        let job = start(&home, ranks, transport, &task);
        job.wait_for("started");
        sleep(Duration::from_micros(random.below(60_000) as u64));
        let struck = Instant::now();
        job.0[victim].signal(if is_kill { Signal::KILL } else { Signal::STOP });
        let (causes, last) = job.causes(victim);
        let took = last - struck;
        let first = &causes[0];
        let what = format!(
            "round {round}, {ranks} ranks over {transport}, rank {victim} {}, task {task:?}",
            if is_kill { "killed" } else { "stopped" }
        );
        for cause in &causes {
            assert_eq!(cause, first, "{what}: survivors differ");
        }
        let named = if is_kill {
            format!("the process of rank {victim} is gone")
        } else {
            format!("rank {victim} does not answer ")
        };
        assert!(first.starts_with(&named), "{what}: {first:?}");
        assert!(took < if is_kill { SOON } else { SOON + TIMEOUT }, "{what}: {took:?}");
        job.0[victim].signal(Signal::CONT);
        // The stopped rank ends by itself too.
        for outcome in job.finish(SOON) {
            let is_known = |line: &str| {
                ["started", "failed ", "cause "].iter().any(|word| line.starts_with(word))
            };
            assert!(outcome.stdout.lines().all(is_known), "{what}: {outcome:?}");
        }
        let left: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|it| it.unwrap().path()).collect();
        assert!(left.is_empty(), "{what}: left behind {left:?}");
        if is_kill { &mut deaths } else { &mut silences }.push(took);
    }
    report(&format!("{ranks} ranks over {transport}, killed"), "has the one cause", deaths);
    report(&format!("{ranks} ranks over {transport}, stopped"), "has the one cause", silences);
}

/// Kills or stops a rank of a new job in each round, in a tenth of the rounds also a second one
/// soon after it. All others must form one group, no other ranks may, and no file may be left.
fn survive(ranks: usize, transport: &str, rounds: usize) {
    let rounds = option_env!("RINGFOLD_TEST_ROUNDS").map_or(rounds, |it| it.parse().unwrap());
    println!("commit {}", commit());
    let mut random = Random::new(random::seed());
    let mut times = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let first = if round % 4 == 0 { 0 } else { random.below(ranks) };
        let is_second = usize::from(round % 10 == 4);
        let mut victims = vec![first];
        while victims.len() <= is_second {
            victims.extend(Some(random.below(ranks)).filter(|it| *it != first));
        }
        let blows: Vec<_> =
            victims.iter().map(|_| [Signal::KILL, Signal::STOP][random.below(2)]).collect();
        let what = format!("round {round}, {ranks} ranks over {transport}, {victims:?}: {blows:?}");
        let home = Home::new();
        let stop = home.path().join("stop");
        let job = start(&home, ranks, transport, &["survive", stop.to_str().unwrap()]);
        job.wait_for("started");
        sleep(Duration::from_micros(random.below(60_000) as u64));
        let struck = Instant::now();
        for (victim, blow) in victims.iter().zip(&blows) {
            job.0[*victim].signal(*blow);
            // A group forms within about this time, or after the timeout of a call.
            let pause = if *blow == Signal::KILL { 0 } else { TIMEOUT.as_millis() as usize };
            sleep(Duration::from_millis((is_second * (pause + random.below(30))) as u64));
        }
        let rest: Vec<_> = (0..ranks).filter(|rank| !victims.contains(rank)).collect();
        let list: Vec<_> = rest.iter().map(ToString::to_string).collect();
        let ends = [format!(" of {} in ", list.join(" ")), "failed ".to_owned()];
        for rank in &rest {
            let is_end = |line: &str| line.contains(&ends[0]) || line.starts_with(&ends[1]);
            let end = job.0[*rank].wait_for_line(2 * SOON, is_end);
            assert!(end.contains(&ends[0]), "{what}: rank {rank}: {end}");
        }
        let took = struck.elapsed();
        // A stopped rank learns that it is out.
        for (victim, _) in victims.iter().zip(&blows).filter(|(_, blow)| **blow == Signal::STOP) {
            job.0[*victim].signal(Signal::CONT);
            let end = job.0[*victim].wait_for_line(2 * SOON, |line| line.starts_with("failed "));
            assert!(end.contains("have formed a group without this one"), "{what}: {end}");
        }
        fs::write(&stop, "").unwrap();
        let mut groups = BTreeMap::new();
        for (rank, outcome) in job.finish(SOON).into_iter().enumerate() {
            let is_done = outcome.stdout.ends_with("done\n");
            assert_eq!(is_done, rest.contains(&rank), "{what}: rank {rank}: {outcome:?}");
            for line in outcome.stdout.lines().filter(|line| line.starts_with("epoch ")) {
                let (group, _) = line.split_once(" in ").unwrap();
                let (epoch, members) = group.split_once(" of ").unwrap();
                let known = groups.entry(epoch.to_owned()).or_insert_with(|| members.to_owned());
                assert_eq!(known, members, "{what}: two groups of {epoch}");
            }
        }
        fs::remove_file(&stop).unwrap();
        let left: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|it| it.unwrap().path()).collect();
        assert!(left.is_empty(), "{what}: left behind {left:?}");
        times[2 * is_second + usize::from(blows.contains(&Signal::STOP))].push(took);
    }
    let names = ["one killed", "one stopped", "two killed", "two, one at least stopped"];
    for (name, times) in names.into_iter().zip(times) {
        report(&format!("{ranks} ranks over {transport}, {name}"), "is in the new group", times);
    }
}

/// Prints the times from the blows until the last survivor had the cause.
fn report(what: &str, end: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    if times.is_empty() {
        return;
    }
    let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    let [median, p99, worst] = [50, 99, 100].map(percentile);
    let over = |limit: u64| times.iter().filter(|it| it.as_millis() > limit.into()).count();
    println!(
        "{what}: {} times. The last survivor {end} after {median:.0?} (median), \
         {p99:.0?} (p99), {worst:.0?} (worst), {} times after more than 100 ms, {} times after \
         more than 1 s",
        times.len(),
        over(100),
        over(1000)
    );
}

/// Returns the commit of the working tree.
fn commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output = Command::new("git").args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|why| format!("unknown ({why})"))
}
