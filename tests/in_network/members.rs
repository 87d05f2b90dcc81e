//! Ranks that die, stop or leave while the others wait for an aggregator's results.

use ringfold_harness::Ranks as Processes;

use super::*;

/// Far beyond the promised bound of 1 s, for loaded machines. The tests print the actual time.
const SOON: Duration = Duration::from_secs(10);

/// Starts ranks of hosts of their own.
fn start(home: &Home, aggregators: &str, task: &[&str]) -> Processes {
    Processes::start(HOSTS, |rank, command| {
        command.args(task).env("RINGFOLD_ALGO", IN_NETWORK);
        command.env("RINGFOLD_TRANSPORT", "tcp").env("RINGFOLD_TIMEOUT", "3");
        command.env("RINGFOLD_HOSTID", format!("host-{rank}"));
        command.env("HOME", home.path()).env_remove("RINGFOLD_SITE_SECRET_FILE");
        if !aggregators.is_empty() {
            command.env("RINGFOLD_AGGREGATORS", aggregators);
            command.env("RINGFOLD_INNETWORK", "require");
        }
    })
}

/// The cause that all ranks but `except` print.
fn cause(members: &Processes, except: usize) -> String {
    let (causes, _) = members.causes(except);
    assert!(causes.iter().all(|cause| cause == &causes[0]), "{causes:?}");
    causes[0].clone()
}

/// Sends a signal to a rank amid its calls. Returns the others' cause, and the time to it.
fn signalled(bytes: &str, victim: usize, signal: Signal) -> (String, Duration) {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let members = start(&home, &aggregator.at, &["allreduce", bytes]);
    members.wait_for("started");
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    members.0[victim].signal(signal);
    let cause = cause(&members, victim);
    println!("{bytes} B, rank {victim}: {signal:?}, {:?}: {cause}", began.elapsed());
    (cause, began.elapsed())
}

#[test]
fn a_rank_that_dies_amid_a_call_is_the_usual_failure() {
    for (bytes, victim) in [("8", 2), ("4000000", 1), ("8", 0)] {
        let (cause, took) = signalled(bytes, victim, Signal::KILL);
        assert!(cause.contains(&format!("the process of rank {victim} is gone")), "{cause}");
        assert!(took < SOON, "{took:?}");
    }
}

#[test]
fn a_rank_that_stops_amid_a_call_is_the_usual_failure() {
    for (bytes, victim) in [("8", 2), ("4000000", 1)] {
        let (cause, took) = signalled(bytes, victim, Signal::STOP);
        assert!(cause.contains(&format!("rank {victim}")), "{cause}");
        assert!(cause.contains("not answer"), "{cause}");
        assert!(took < SOON, "{took:?}");
    }
}

/// The cause with aggregators is that without, and comes long before the timeout.
#[test]
fn a_rank_that_leaves_while_others_call_is_the_usual_failure() {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let usual = start(&home, "", &["leaves"]);
    let usual = cause(&usual, 1);
    assert!(usual.contains("rank 1"), "{usual}");
    let began = Instant::now();
    let members = start(&home, &aggregator.at, &["leaves"]);
    assert_eq!(cause(&members, 1), usual);
    println!("{:?}: {usual}", began.elapsed());
}

/// The survivors of a death ask the aggregator for a group of their own, which serves their calls.
#[test]
fn survivors_ask_the_aggregator_anew() {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let stop = home.path().join("stop");
    let members = start(&home, &aggregator.at, &["survive", stop.to_str().unwrap()]);
    members.wait_for("started");
    let serves = |size: usize| {
        let began = Instant::now();
        while !home.groups(&aggregator.at).iter().any(|it| it.0 == size && it.1 > 100) {
            assert!(began.elapsed() < SOON, "{}", home.stats(&aggregator.at));
            thread::sleep(Duration::from_millis(20));
        }
    };
    serves(HOSTS);
    members.0[1].signal(Signal::KILL);
    for rank in [0, 2] {
        members.0[rank].line_within("epoch 1 of 0 2 ", 3 * SOON);
    }
    serves(HOSTS - 1);
    std::fs::write(&stop, "").unwrap();
    for rank in [0, 2] {
        members.0[rank].line_within("done", SOON);
    }
}
