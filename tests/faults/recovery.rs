//! Ranks that go on without those that died, stopped or were cut off.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use ringfold_harness::{Folder, Job, Namespaces, Ranks, TorchStore, kill, program};
use rustix::process::Signal;

use crate::job::{SOON, start, timeout};

/// A job of ranks that survive, and the file that ends it.
struct Survivors {
    job: Ranks,
    stop: std::path::PathBuf,
    _folder: Folder,
}

impl Survivors {
    fn start(size: usize, transport: &str) -> Self {
        Self::prepare(transport, |task, settings| start(size, transport, task, settings))
    }

    /// Ranks on a host of their own each, in namespaces.
    fn on(hosts: &Namespaces, size: usize) -> Self {
        Self::prepare("tcp", |task, settings| {
            Ranks::of("ip", size, |rank, command| {
                let host = hosts.name(&format!("h{rank}"));
                // No host sees the processes of another.
                command.args(["netns", "exec", &*host, "unshare", "--pid", "--fork"]);
                command.arg("--kill-child").arg(program::own("rank")).args(task);
                command.env("MASTER_ADDR", "10.77.0.1").env("RINGFOLD_TRANSPORT", "tcp");
                command.env("RINGFOLD_HOSTID", &host).envs(settings.iter().copied());
            })
        })
    }

    fn prepare(transport: &str, start: impl Fn(&[&str], &[(&str, &str)]) -> Ranks) -> Self {
        Self::prepare_task("survive", transport, start)
    }

    fn prepare_task(
        task: &str,
        transport: &str,
        start: impl Fn(&[&str], &[(&str, &str)]) -> Ranks,
    ) -> Self {
        let folder = Folder::new();
        let stop = folder.path().join("stop");
        let limit = timeout(transport).as_secs().to_string();
        let task = [task, stop.to_str().unwrap()];
        let settings = [("RINGFOLD_TIMEOUT", &*limit), ("RINGFOLD_JOIN_TIMEOUT", "30")];
        let job = start(&task, &settings);
        job.wait_for("started");
        std::thread::sleep(Duration::from_millis(100));
        Self { job, stop, _folder: folder }
    }

    /// All of these ranks reach this epoch, with these ranks in it.
    fn reach(&self, epoch: usize, members: &[usize]) {
        let list: Vec<String> = members.iter().map(ToString::to_string).collect();
        let expected = format!("of {} in ", list.join(" "));
        for rank in members {
            let line = self.job.0[*rank].line_within(&format!("epoch {epoch} "), 3 * SOON);
            assert!(line.starts_with(&expected), "rank {rank}: {line:?} is not {expected:?}");
        }
    }

    /// The job ends, and these ranks have finished their work.
    fn end(self, members: &[usize]) {
        std::fs::write(&self.stop, "").unwrap();
        for rank in members {
            self.job.0[*rank].line_within("done", SOON);
        }
    }
}

/// Every rank but one dies, one after the other, rank 0 first.
pub(crate) fn the_survivors_of_each_death_go_on(transport: &str) {
    let survivors = Survivors::start(4, transport);
    let mut members = vec![0, 1, 2, 3];
    for (epoch, victim) in [0, 2, 3].into_iter().enumerate() {
        let killed = Instant::now();
        survivors.job.0[victim].signal(Signal::KILL);
        members.retain(|rank| *rank != victim);
        survivors.reach(epoch + 1, &members);
        println!("{transport}: {members:?} went on after {:?}", killed.elapsed());
    }
    survivors.end(&members);
}

/// The survivors agree anew on their hosts: one that loses its last rank is none of them any more.
#[test]
fn the_layout_is_that_of_the_survivors() {
    let survivors = Survivors::prepare("shm,tcp", |task, settings| {
        Ranks::start(5, |rank, command| {
            command.args(task).env("RINGFOLD_TRANSPORT", "shm,tcp");
            command.env("RINGFOLD_HOSTID", format!("host-{}", rank / 2));
            command.envs(settings.iter().copied());
        })
    });
    let mut members = vec![0, 1, 2, 3, 4];
    for (epoch, (victim, hosts)) in [(3, "0 0 1 2"), (2, "0 0 1")].into_iter().enumerate() {
        survivors.job.0[victim].signal(Signal::KILL);
        members.retain(|rank| *rank != victim);
        survivors.reach(epoch + 1, &members);
        for rank in &members {
            assert_eq!(survivors.job.0[*rank].line_within("hosts ", SOON), hosts);
        }
    }
    survivors.end(&members);
}

/// Ranks agree on value after value, while two of four die and one revokes the communicator.
pub(crate) fn survivors_agree_on_the_same_values(transport: &str) {
    let start = |task: &[&str], settings: &[(&str, &str)]| start(4, transport, task, settings);
    let survivors = Survivors::prepare_task("agree", transport, start);
    let (ranks, mut members) = (&survivors.job.0, vec![0, 1, 2, 3]);
    for rank in &members {
        assert_eq!(ranks[*rank].line_within("counted ", SOON), "1111");
    }
    for victim in [0, 2] {
        ranks[victim].signal(Signal::KILL);
        members.retain(|rank| *rank != victim);
        let bits: u32 = members.iter().map(|rank| 1 << rank).sum();
        for rank in &members {
            assert_eq!(ranks[*rank].line_within("counted ", 3 * SOON), format!("{bits:b}"));
        }
    }
    std::fs::write(&survivors.stop, "").unwrap();
    let ends: Vec<String> =
        members.iter().map(|rank| ranks[*rank].line_within("agreed ", 3 * SOON)).collect();
    println!("{transport}: {}", ends[0]);
    assert!(ends[0] == ends[1] && ends[0].ends_with("2 ranks go on"), "{ends:?}");
}

/// A stopped rank is left out. When it comes back it learns that it is out.
pub(crate) fn a_stopped_rank_is_left_out(transport: &str) {
    for victim in [0, 1] {
        let survivors = Survivors::start(4, transport);
        survivors.job.0[victim].signal(Signal::STOP);
        let members: Vec<usize> = (0..4).filter(|rank| *rank != victim).collect();
        survivors.reach(1, &members);
        survivors.job.0[victim].signal(Signal::CONT);
        let error = survivors.job.0[victim].line_within("failed ", 3 * SOON);
        assert!(error.contains("have formed a group without this one"), "{error}");
        survivors.end(&members);
    }
}

/// A second rank dies while the others regroup.
pub(crate) fn a_second_death_begins_again(transport: &str) {
    for (first, second, pause) in [(3, 0, 1), (0, 1, 10), (2, 3, 5), (1, 0, 20), (0, 4, 3)] {
        let survivors = Survivors::start(5, transport);
        survivors.job.0[first].signal(Signal::KILL);
        std::thread::sleep(Duration::from_millis(pause));
        survivors.job.0[second].signal(Signal::KILL);
        let members: Vec<usize> = (0..5).filter(|it| ![first, second].contains(it)).collect();
        let list: Vec<String> = members.iter().map(ToString::to_string).collect();
        let expected = format!("of {} in ", list.join(" "));
        for rank in &members {
            loop {
                let line = survivors.job.0[*rank].line_within("epoch ", 3 * SOON);
                if line.contains(&expected) {
                    break;
                }
            }
        }
        survivors.end(&members);
    }
}

/// Two of four ranks are stopped, so the others are no quorum.
pub(crate) fn half_of_the_ranks_do_not_go_on(transport: &str) {
    let survivors = Survivors::start(4, transport);
    for victim in [2, 3] {
        survivors.job.0[victim].signal(Signal::STOP);
    }
    for rank in [0, 1] {
        let error = survivors.job.0[rank].line_within("failed ", 3 * SOON);
        assert!(error.contains("2 of 4 ranks have come"), "{error}");
    }
}

/// The side of a parted network that has more than half of the ranks goes on, and no other.
#[test]
fn a_network_that_parts_leaves_at_most_one_group() {
    for apart in [&[3][..], &[2, 3]] {
        let Some(hosts) = Namespaces::star("10.77.0", 4) else { return };
        let survivors = Survivors::on(&hosts, 4);
        hosts.ip("-n @s link add br1 type bridge");
        hosts.ip("-n @s link set br1 up");
        for rank in apart {
            hosts.ip(&format!("-n @s link set p{rank} master br1"));
        }
        let rest: Vec<usize> = (0..4).filter(|rank| !apart.contains(rank)).collect();
        if rest.len() > 2 {
            survivors.reach(1, &rest);
        }
        for rank in (0..4).filter(|rank| rest.len() == 2 || apart.contains(rank)) {
            let error = survivors.job.0[rank].line_within("failed ", 6 * SOON);
            let few = format!("{} of 4 ranks have come", apart.len());
            assert!(error.contains(&few), "rank {rank}: {error}");
        }
        if rest.len() > 2 {
            survivors.end(&rest);
        }
    }
}

/// A job of `ringrun --restart`, and the latest lines of its ranks.
struct Restarted {
    job: Job,
    stop: std::path::PathBuf,
    /// The process of each rank.
    pids: BTreeMap<usize, u32>,
    /// The epoch of each rank, and its identities.
    epochs: BTreeMap<usize, (u64, usize)>,
    _folder: Folder,
}

impl Restarted {
    /// Ranks that a script starts, with the program and its arguments.
    fn start(script: &str, times: &str, transport: &str) -> Self {
        Self::start_by(&[], script, times, transport)
    }

    /// Ranks that `ringrun` starts with these flags too.
    fn start_by(flags: &[&str], script: &str, times: &str, transport: &str) -> Self {
        let folder = Folder::new();
        let stop = folder.path().join("stop");
        let mut command = Command::new(program::binary("ringrun"));
        command.args(["-n", "4", "--restart", times, "--tag-output"]).args(flags);
        command.args(["sh", "-c", script, "sh"]).arg(program::own("rank")).args([
            "survive".as_ref(),
            stop.as_os_str(),
            "replace".as_ref(),
        ]);
        command.env("RINGFOLD_TRANSPORT", transport).env("RINGFOLD_JOIN_TIMEOUT", "30");
        command.env("RINGFOLD_TIMEOUT", timeout(transport).as_secs().to_string());
        let (pids, epochs) = (BTreeMap::new(), BTreeMap::new());
        let job = Job::start(&mut command);
        let mut restarted = Self { job, stop, pids, epochs, _folder: folder };
        restarted.until(|it| it.pids.len() == 4);
        std::thread::sleep(Duration::from_millis(100));
        restarted
    }

    /// Reads lines until the condition holds.
    fn until(&mut self, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            let line = self.job.lines(1).remove(0);
            let Some((rank, said)) = line.strip_prefix('[').and_then(|it| it.split_once(']'))
            else {
                continue;
            };
            let rank = rank.trim().parse().unwrap();
            match said.split_whitespace().collect::<Vec<_>>()[..] {
                ["pid", pid] => drop(self.pids.insert(rank, pid.parse().unwrap())),
                ["epoch", epoch, "of", ref rest @ ..] => {
                    let epoch = epoch.parse().unwrap();
                    self.epochs.insert(rank, (epoch, rest.len() - 3));
                }
                ["failed", ..] => panic!("{line}"),
                _ => {}
            }
        }
    }
}

/// `ringrun` replaces each killed rank, rank 0 among them, and the survivors stay.
pub(crate) fn a_killed_rank_is_replaced(transport: &str) {
    let mut job = Restarted::start("exec \"$@\"", "3", transport);
    for (victim, epoch) in [(2, 2), (0, 4), (1, 6), (0, 8)] {
        let before = job.pids.clone();
        let began = Instant::now();
        kill(before[&victim], Signal::KILL);
        job.until(|it| (0..4).all(|rank| it.epochs.get(&rank) == Some(&(epoch, 4))));
        println!("{transport}: rank {victim} was replaced within {:?}", began.elapsed());
        for (rank, pid) in &job.pids {
            assert_eq!(before[rank] == *pid, *rank != victim, "rank {rank}");
        }
    }
    std::fs::write(&job.stop, "").unwrap();
    let outcome = job.job.finish(3 * SOON);
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    let said = "the job has ended well; started again: rank 0 (2 times), rank 1, rank 2";
    assert!(outcome.stderr.ends_with(&format!("ringrun: {said}\n")), "{outcome:?}");
}

/// The node agent of a host is killed, and its ranks end with it. New ones come on a spare host,
/// and on the next one when that is lost too.
#[test]
fn the_ranks_of_a_lost_host_are_replaced_on_a_spare_one() {
    let folder = Folder::new();
    let agent = "#!/bin/sh\nRINGFOLD_HOSTID=$1; export RINGFOLD_HOSTID; shift; exec \"$@\"\n";
    let agent = folder.program("agent", agent);
    let flags = ["--agent", &agent, "--rendezvous-addr", "127.0.0.1"];
    let flags = [&flags[..], &["--host", "a:2,b:2", "--spare", "c:2,d:2"]].concat();
    let mut job = Restarted::start_by(&flags, "exec \"$@\"", "3", "shm,tcp");
    for epoch in [2, 4] {
        let before = job.pids.clone();
        let began = Instant::now();
        kill(parent(before[&3]), Signal::KILL);
        job.until(|it| (0..4).all(|rank| it.epochs.get(&rank) == Some(&(epoch, 4))));
        println!("two ranks were replaced within {:?}", began.elapsed());
        for (rank, pid) in &job.pids {
            assert_eq!(before[rank] == *pid, *rank < 2, "rank {rank}");
        }
    }
    std::fs::write(&job.stop, "").unwrap();
    let outcome = job.job.finish(3 * SOON);
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    for place in ["0.1 s on host c", "0.2 s on host d"] {
        let words = format!("rank 3 is lost with its host, and starts again in {place} ");
        assert!(outcome.stderr.contains(&words), "{words}: {outcome:?}");
    }
    let said = "the job has ended well; started again: rank 2 (2 times), rank 3 (2 times)";
    assert!(outcome.stderr.ends_with(&format!("ringrun: {said}\n")), "{outcome:?}");
}

/// The parent of a process.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Two of four ranks are stopped, rank 0 among them. The others have the vote of `ringrun`.
pub(crate) fn half_of_the_ranks_go_on_by_the_vote_of_the_launcher(transport: &str) {
    let mut job = Restarted::start("exec \"$@\"", "0", transport);
    let stopped = [0, 1].map(|rank| job.pids[&rank]);
    for pid in stopped {
        kill(pid, Signal::STOP);
    }
    job.until(|it| (2..4).all(|rank| it.epochs.get(&rank) == Some(&(1, 2))));
    for pid in stopped {
        kill(pid, Signal::CONT);
    }
    for rank in 0..2 {
        let mut lines = std::iter::repeat_with(|| job.job.lines(1).remove(0));
        let failed = lines.find(|line| line.contains("failed ")).unwrap();
        assert!(failed.contains("have formed a group without this one"), "{rank}: {failed}");
    }
    std::fs::write(&job.stop, "").unwrap();
    let outcome = job.job.finish(3 * SOON);
    assert_eq!(outcome.code(), 0, "{outcome:?}");
}

/// Two of four ranks are stopped, rank 0 among them. The others have the vote of torchrun's store,
/// unless it has begun anew.
#[test]
fn half_of_the_ranks_go_on_by_the_vote_of_the_store_of_torchrun() {
    for remembers in [true, false] {
        let store = TorchStore::start();
        let survivors = Survivors::prepare("tcp", |task, settings| {
            Ranks::start(4, |_, command| {
                command.args(task).env("RINGFOLD_TRANSPORT", "tcp").env_remove("RINGFOLD_SECRET");
                command.envs(settings.iter().copied()).envs(store.variables());
            })
        });
        let stopped = &survivors.job.0[..2];
        stopped.iter().for_each(|rank| rank.signal(Signal::STOP));
        let failed = |rank: usize, words: &str| {
            let error = survivors.job.0[rank].line_within("failed ", 3 * SOON);
            assert!(error.contains(words), "rank {rank}: {error}");
        };
        if !remembers {
            store.forget();
            (2..4).for_each(|rank| failed(rank, "2 of 4 ranks have come"));
            continue;
        }
        survivors.reach(1, &[2, 3]);
        stopped.iter().for_each(|rank| rank.signal(Signal::CONT));
        (0..2).for_each(|rank| failed(rank, "have formed a group without this one"));
        survivors.end(&[2, 3]);
    }
}

/// Two of four ranks are stopped, rank 0 among them. The others agree by the vote of `ringrun`,
/// and shrink by it.
pub(crate) fn half_of_the_ranks_agree_by_the_vote_of_the_launcher(transport: &str) {
    let folder = Folder::new();
    let stop = folder.path().join("stop");
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", "4", "--enable-recovery", "--tag-output", "sh", "-c"]);
    command.arg("echo pid $$; exec \"$@\"").arg("sh").arg(program::own("rank"));
    command.arg("agree").arg(&stop).env("RINGFOLD_TRANSPORT", transport);
    command.env("RINGFOLD_TIMEOUT", timeout(transport).as_secs().to_string());
    let job = Job::start(&mut command);
    let said = |rank: usize, words: &str| {
        let head = format!("[{rank}] {words}");
        let line = job.wait_for_line(3 * SOON, |line| line.starts_with(&head));
        line[head.len()..].trim().to_owned()
    };
    let pids: Vec<u32> = (0..4).map(|rank| said(rank, "pid ").parse().unwrap()).collect();
    (0..4).for_each(|rank| assert_eq!(said(rank, "counted 1111"), ""));
    pids[..2].iter().for_each(|pid| kill(*pid, Signal::STOP));
    (2..4).for_each(|rank| assert_eq!(said(rank, "counted 1100"), ""));
    std::fs::write(&stop, "").unwrap();
    let ends = [2, 3].map(|rank| said(rank, "agreed "));
    assert!(ends[0] == ends[1] && ends[0].ends_with("2 ranks go on"), "{ends:?}");
    pids[..2].iter().for_each(|pid| kill(*pid, Signal::KILL));
    assert_eq!(job.finish(3 * SOON).code(), 0);
}

/// A program that ends at each new start is named, and the survivors go on without it.
pub(crate) fn a_rank_that_dies_at_each_start_is_named(transport: &str) {
    let script = "[ -z \"$RINGFOLD_NEWCOMER\" ] && exec \"$@\"; exit 3";
    let mut job = Restarted::start(script, "2", transport);
    kill(job.pids[&3], Signal::KILL);
    job.until(|it| (0..3).all(|rank| it.epochs.get(&rank) == Some(&(1, 3))));
    std::fs::write(&job.stop, "").unwrap();
    let outcome = job.job.finish(3 * SOON);
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    for said in [
        "rank 3 was killed by signal 9, and starts again in 0.1 s (1 of 2",
        "rank 3 after 2 new starts",
        "ended well; started again: rank 3 (2 times); gone on without: rank 3",
    ] {
        assert!(outcome.stderr.contains(said), "{said}: {outcome:?}");
    }
}
