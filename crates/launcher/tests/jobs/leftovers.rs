//! No process of the job stays behind, no matter which process dies and how.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{assert_ended, assert_gone, children, mark, marked, ringrun};
use ringfold_harness::{Job, Outcome, kill};
use rustix::process::Signal;

/// A rank with a child in its group, one in its own session, and a stubborn orphan.
const TREE: &str = "
    sh -c 'echo child; exec sleep MARK' &
    setsid sh -c 'echo sessionleader; exec sleep MARK' &
    (setsid sh -c 'trap \"\" TERM INT HUP; echo orphan; while :; do sleep MARK; done' &)
    echo rank; wait";

/// Starts two ranks with their process trees, all of them running.
fn trees(options: &[&str], after: &str) -> (Job, String) {
    let mark = mark();
    let script = format!("{TREE}; {after}").replace("MARK", &mark);
    let args = [&["-n", "2"], options, &["sh", "-c", &script]].concat();
    let job = Job::start(&mut ringrun(&args));
    let lines = job.lines(8);
    assert_eq!(lines.iter().filter(|line| *line == "orphan").count(), 2);
    assert!(marked(&mark).len() >= 8);
    (job, mark)
}

#[test]
fn a_trampoline_dies_with_its_node_agent_before_it_has_an_order() {
    // A shell takes the node agent's place. This test holds the pipe over which an order would
    // come.
    let script = "exec 3<&0; \"$0\" --ringfold-trampoline <&3 & echo $!; wait";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_ringrun")]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = line.trim().parse::<u32>().unwrap();
    // It sleeps for a while, because it waits for the order.
    let mut sleeping = 0;
    while sleeping < 20 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        sleeping = if stat.contains("(ringrun) S ") { sleeping + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(10));
    }
    shell.kill().unwrap();
    let order = shell.stdin.take();
    shell.wait().unwrap();
    assert_ended(&[pid]);
    drop(order);
}

#[test]
fn interrupt() {
    let (job, mark) = trees(&[], "");
    job.signal(Signal::INT);
    let done = job.outcome();
    assert_eq!(done.code(), 130, "{done:?}");
    assert_eq!(done.last_line(), "ringrun: interrupted by SIGINT; 2 ranks were stopped");
    assert_gone(&mark);
}

#[test]
fn terminate_and_hang_up() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let (job, mark) = trees(&[], "");
        job.signal(signal);
        let done = job.outcome();
        assert_eq!(done.code(), code, "{done:?}");
        assert_gone(&mark);
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    let mut command = std::process::Command::new("nohup");
    let script = "echo ready; sleep 0.5; echo done";
    command.arg(env!("CARGO_BIN_EXE_ringrun")).args(["-n", "1", "sh", "-c", script]);
    let job = Job::start(&mut command);
    assert_eq!(job.lines(1), ["ready"]);
    job.signal(Signal::HUP);
    let done = job.outcome();
    assert_eq!((done.code(), done.stdout.as_str()), (0, "ready\ndone\n"), "{}", done.stderr);
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let mark = mark();
    let script = format!("trap '' INT TERM; echo ready; while :; do sleep {mark}; done");
    let job = Job::start(&mut ringrun(&["-n", "2", "sh", "-c", &script]));
    job.lines(2);
    job.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    job.signal(Signal::INT);
    assert_eq!(job.outcome().code(), 130);
    assert_gone(&mark);
}

#[test]
fn the_launcher_is_killed() {
    let (mut job, mark) = trees(&[], "");
    job.signal(Signal::KILL);
    assert_eq!(job.wait(), -9);
    assert_gone(&mark);
}

#[test]
fn the_node_agent_is_killed() {
    let (job, mark) = trees(&["--grace", "0"], "");
    kill(node_agent_and_guardian(&job)[0], Signal::KILL);
    let done = job.outcome();
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.stderr.contains("ringrun: the node agent of host "), "{done:?}");
    let line = done.last_line();
    assert!(line.contains("is lost: ringrun there ended (exit status: 137)"), "{done:?}");
    assert_gone(&mark);
}

#[test]
fn the_guardian_is_killed() {
    let (job, mark) = trees(&["--grace", "0"], "");
    kill(node_agent_and_guardian(&job)[1], Signal::KILL);
    let done = job.outcome();
    assert_eq!(done.code(), 125, "{done:?}");
    let line = done.last_line();
    assert!(line.ends_with("its ranks: its guardian was killed; 2 ranks were stopped"), "{done:?}");
    assert_gone(&mark);
}

#[test]
fn node_agent_and_guardian_are_killed() {
    let (job, mark) = trees(&["--grace", "0"], "");
    let both = node_agent_and_guardian(&job);
    both.iter().for_each(|pid| kill(*pid, Signal::STOP));
    both.iter().for_each(|pid| kill(*pid, Signal::KILL));
    let done = job.outcome();
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.last_line().contains("is lost: ringrun there ended (signal: 9"), "{done:?}");
    assert_gone(&mark);
}

#[test]
fn ringrun_node_agent_and_guardian_are_killed() {
    let (mut job, mark) = trees(&[], "");
    let all = [&[job.id()], &node_agent_and_guardian(&job)[..]].concat();
    all.iter().for_each(|pid| kill(*pid, Signal::STOP));
    all.iter().for_each(|pid| kill(*pid, Signal::KILL));
    assert_eq!(job.wait(), -9);
    assert_gone(&mark);
}

#[test]
fn a_stopped_node_agent_does_not_outlive_the_job() {
    let (mut job, mark) = trees(&[], "");
    let [node_agent, guardian] = node_agent_and_guardian(&job);
    kill(node_agent, Signal::STOP);
    job.signal(Signal::KILL);
    assert_eq!(job.wait(), -9);
    assert_gone(&mark);
    assert_ended(&[node_agent, guardian]);

    // Nor does ringrun wait for it for ever.
    let (job, mark) = trees(&[], "");
    let [node_agent, guardian] = node_agent_and_guardian(&job);
    kill(node_agent, Signal::STOP);
    job.signal(Signal::INT);
    assert_eq!(job.outcome().code(), 130);
    assert_gone(&mark);
    assert_ended(&[node_agent, guardian]);
}

/// The node agent and the guardian of this host.
fn node_agent_and_guardian(job: &Job) -> [u32; 2] {
    let guardians = children(job.id());
    let node_agents = children(guardians[0]);
    assert_eq!((guardians.len(), node_agents.len()), (1, 1));
    [node_agents[0], guardians[0]]
}

#[test]
fn a_rank_fails() {
    let mark = mark();
    let fail = "[ $RINGFOLD_RANK = 1 ] && exit 4; wait";
    let script = TREE.replace("wait", fail).replace("MARK", &mark);
    let args = ["-n", "2", "--grace", "0.2", "sh", "-c", &script];
    let done = Outcome::of(&mut ringrun(&args));
    assert_eq!(done.code(), 4, "{done:?}");
    assert_gone(&mark);
}

#[test]
fn ranks_that_succeed_leave_daemons() {
    let mark = mark();
    let script = TREE.replace("wait", "exit 0").replace("MARK", &mark);
    let done = Outcome::of(&mut ringrun(&["-n", "2", "sh", "-c", &script]));
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""));
    assert_gone(&mark);
}

#[test]
fn a_stopped_rank_is_stopped_for_good() {
    let mark = mark();
    let script = format!("echo $$; exec sleep {mark}");
    let job = Job::start(&mut ringrun(&["-n", "2", "sh", "-c", &script]));
    let pids = job.lines(2);
    kill(pids[0].parse().unwrap(), Signal::STOP);
    job.signal(Signal::TERM);
    assert_eq!(job.outcome().code(), 143);
    assert_gone(&mark);
}
