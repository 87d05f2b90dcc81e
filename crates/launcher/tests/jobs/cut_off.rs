//! Another host that ringrun cannot clean up: its processes descend from a server in place of sshd,
//! not from ringrun. None of them stays when something is killed, stopped or cut.

use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{assert_ended, assert_gone, children, mark, marked, ringrun};
use ringfold_harness::{Folder, Job, kill};
use rustix::process::Signal;

/// Long enough for a loaded machine, short enough for a test.
const HOST_TIMEOUT: &str = "4";

/// A rank with a child in its own session and a stubborn orphan. None of them has output.
const TREE: &str = "
    setsid sleep MARK &
    (setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep MARK; done' &)
    echo $PPID; exec sleep MARK";

/// The server of a host, and the agent that calls it. Each call is two processes of the agent that
/// copy bytes, as ssh does, and a command that descends from the server.
struct RemoteHost {
    folder: Folder,
    server: Child,
}

impl RemoteHost {
    fn new() -> Self {
        let folder = Folder::new();
        let server = "mkfifo calls; exec 4<>calls; echo >ready; while read id command <&4; do
            (exec setsid $command <in.$id >out.$id 4<&-) & done";
        let agent = "#!/bin/sh
            shift; cd $(dirname $0) && mkfifo in.$$ out.$$ && exec 3<&0
            setsid sh -c 'echo $$ >>copiers; exec cat >$0' in.$$ <&3 2>/dev/null &
            echo $$ \"$@\" >calls
            setsid sh -c 'echo $$ >>copiers; exec cat <$0' out.$$ 2>/dev/null & wait";
        folder.program("agent", agent);
        let mut shell = Command::new("sh");
        let server = shell.args(["-c", server]).current_dir(folder.path()).spawn().unwrap();
        let this = Self { folder, server };
        await_that("the server is ready", || this.folder.path().join("ready").exists());
        this
    }

    fn agent(&self) -> String {
        self.folder.at("agent")
    }

    /// Starts `ringrun` with one rank here and `ranks` ranks there, each of which runs `script`.
    fn start(&self, ranks: usize, script: &str) -> Job {
        let agent = self.agent();
        let hosts = format!("localhost:1,far:{ranks}");
        let args = ["--agent", &agent, "--host", &hosts, "--rendezvous-addr", "127.0.0.1"];
        let more = ["--grace", "0.5", "--host-timeout", HOST_TIMEOUT, "sh", "-c", script];
        Job::start(&mut ringrun(&[&args[..], &more].concat()))
    }

    /// Cuts the connection: no bytes arrive any more, and neither end learns of it.
    fn cut(&self) {
        self.copiers().iter().for_each(|pid| kill(*pid, Signal::STOP));
    }

    fn mend(&self) {
        self.copiers().iter().for_each(|pid| kill(*pid, Signal::CONT));
    }

    fn copiers(&self) -> Vec<u32> {
        let pids = || numbers(&self.folder.path().join("copiers"));
        await_that("both copiers run", || pids().len() == 2);
        pids()
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        for pid in numbers(&self.folder.path().join("copiers")) {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, Signal::KILL).ok();
        }
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

fn numbers(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn await_that(what: &str, condition: impl Fn() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < until, "not so: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A job on both hosts, with all its processes running.
struct Trees {
    remote: RemoteHost,
    job: Job,
    mark: String,
    /// The node agent on the other host.
    node_agent: u32,
    /// The guardian of that node agent.
    guardian: u32,
}

impl Trees {
    fn start() -> Self {
        let (remote, mark) = (RemoteHost::new(), mark());
        let job = remote.start(2, &TREE.replace("MARK", &mark));
        let node_agents =
            job.lines(3).iter().map(|line| line.parse().unwrap()).collect::<Vec<u32>>();
        let ours = children(job.id()).into_iter().find(|pid| is_guardian(*pid)).unwrap();
        let here = children(ours)[0];
        let node_agent = node_agents.into_iter().find(|node_agent| *node_agent != here).unwrap();
        // Counts each rank, its child, its orphan and its orphan's child, and ringrun.
        await_that("all trees are complete", || marked(&mark).len() >= 13);
        let guardian = parent(node_agent);
        assert!(is_guardian(guardian) && parent(guardian) == remote.server.id());
        Self { remote, job, mark, node_agent, guardian }
    }

    fn assert_nothing_left(&self) {
        assert_gone(&self.mark);
        assert_ended(&[self.node_agent, self.guardian]);
    }

    /// Waits for the end of ringrun, which must report the lost host with this reason.
    fn assert_lost(self, why: &str) {
        let Self { remote, job, mark, node_agent, guardian } = self;
        let done = job.outcome();
        assert_eq!(done.code(), 125, "{done:?}");
        let line = done.last_line();
        assert!(line.starts_with("ringrun: host far is lost: ") && line.contains(why), "{done:?}");
        assert_gone(&mark);
        assert_ended(&[node_agent, guardian]);
        drop(remote);
    }
}

fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn is_guardian(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"--ringfold-guardian")
}

#[test]
fn the_node_agent_on_another_host_is_killed() {
    let trees = Trees::start();
    kill(trees.node_agent, Signal::KILL);
    trees.assert_lost("ringrun there ended (");
}

#[test]
fn the_guardian_on_another_host_is_killed() {
    let trees = Trees::start();
    kill(trees.guardian, Signal::KILL);
    trees.assert_lost("ringrun there ended its ranks: its guardian was killed");
}

#[test]
fn the_node_agent_on_another_host_is_asked_to_go() {
    let trees = Trees::start();
    kill(trees.node_agent, Signal::TERM);
    trees.assert_lost("ringrun there ended its ranks: SIGTERM asked it to");
}

#[test]
fn ringrun_is_killed() {
    let mut trees = Trees::start();
    trees.job.signal(Signal::KILL);
    assert_eq!(trees.job.wait(), -9);
    trees.assert_nothing_left();
}

#[test]
fn the_connection_is_cut_without_notice() {
    let trees = Trees::start();
    trees.remote.cut();
    trees.assert_lost("/agent' for 4 s; if it is only slow");
}

#[test]
fn the_connection_is_cut_and_ringrun_is_killed() {
    let mut trees = Trees::start();
    trees.remote.cut();
    trees.job.signal(Signal::KILL);
    assert_eq!(trees.job.wait(), -9);
    trees.assert_nothing_left();
}

#[test]
fn the_node_agent_on_another_host_is_stopped() {
    let trees = Trees::start();
    kill(trees.node_agent, Signal::STOP);
    trees.assert_lost("/agent' for 4 s; if it is only slow");
}

#[test]
fn a_stop_longer_than_allowed_ends_the_ranks_on_another_host() {
    let trees = Trees::start();
    trees.job.signal(Signal::STOP);
    // Only the processes on this host and ringrun are left. A pipe shows this host's ranks that
    // ringrun lives.
    await_that("the other host has given up", || marked(&trees.mark).len() <= 5);
    assert_ended(&[trees.node_agent]);
    trees.job.signal(Signal::CONT);
    trees.assert_lost("it has received nothing from ringrun for 4 s (--host-timeout)");
}

/// Starts ranks that print nothing for far longer than hosts may be silent.
fn quiet(remote: &RemoteHost) -> Job {
    remote.start(1, "echo ready; sleep 13; echo done")
}

fn assert_fine(job: Job) {
    let done = job.outcome();
    let found = (done.code(), &*done.stdout, &*done.stderr);
    assert_eq!(found, (0, "ready\nready\ndone\ndone\n", ""));
}

#[test]
fn ranks_may_be_quiet() {
    let remote = RemoteHost::new();
    let job = quiet(&remote);
    assert_fine(job);
}

#[test]
fn a_short_stop_of_anything_does_no_harm() {
    let remote = RemoteHost::new();
    let job = quiet(&remote);
    job.lines(2);
    remote.cut();
    sleep(Duration::from_secs(1));
    remote.mend();
    sleep(Duration::from_secs(1));
    job.signal(Signal::STOP);
    sleep(Duration::from_secs(1));
    job.signal(Signal::CONT);
    assert_fine(job);
}

#[test]
fn a_pause_of_both_ends_is_no_silence() {
    let remote = RemoteHost::new();
    let job = remote.start(1, "echo ready; echo $PPID >&2; sleep 10; echo done");
    job.lines(2);
    let node_agents =
        job.error_lines(2).iter().map(|line| line.parse().unwrap()).collect::<Vec<u32>>();
    // Acts as if the machine was suspended for longer than hosts may be silent.
    let all = [&node_agents[..], &[job.id()], &remote.copiers()].concat();
    all.iter().for_each(|pid| kill(*pid, Signal::STOP));
    sleep(Duration::from_secs(6));
    all.iter().for_each(|pid| kill(*pid, Signal::CONT));
    let done = job.outcome();
    assert_eq!((done.code(), &*done.stdout), (0, "ready\nready\ndone\ndone\n"), "{done:?}");
}

#[test]
fn the_secret_travels_by_no_argument_and_no_environment() {
    let remote = RemoteHost::new();
    let show = "od -An -v -tx1 /proc/self/fd/$RINGFOLD_SECRET_FD | tr -d ' \\n'; echo;
        for pid in $$ $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do
            cat /proc/$pid/cmdline /proc/$pid/environ; done | tr '\\0' '\\n' >&2";
    let job = remote.start(1, show);
    // The agent has the arguments of the call.
    let copiers = remote.copiers();
    let agent = std::fs::read(format!("/proc/{}/cmdline", parent(copiers[0]))).unwrap_or_default();
    let done = job.outcome();
    let secrets = done.lines();
    assert!(secrets.len() == 2 && secrets[0] == secrets[1] && secrets[0].len() == 64, "{done:?}");
    assert!(
        done.stderr.contains("--ringfold-guardian") && done.stderr.contains("RINGFOLD_RENDEZVOUS=")
    );
    assert!(!done.stderr.contains(secrets[0]));
    assert!(!String::from_utf8_lossy(&agent).contains(secrets[0]));
}
