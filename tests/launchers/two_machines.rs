//! The commands of `docs/two-machines.md`, run as they stand there on two hosts with homes of their
//! own. Scripts take the places of `ssh` and `scp`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ringfold_harness::{Folder, Job, Outcome, needed, program};

use crate::hosts::{Hosts, INSIDE};
use crate::perf::DEADLINE;

/// The page.
const PAGE: &str = include_str!("../../docs/two-machines.md");

/// Commands that prepare real machines: this test has its own ways to do so.
const PREPARATIONS: [&str; 3] = ["cargo ", "ssh-keygen ", "ssh-copy-id "];

/// Runs a command on a host: in its network, with its name, and with its home, which has the same
/// path on both hosts. The name of a host's network namespace is in a file of that host.
const ENTER: &str = r#"#!/bin/sh
lab=${0%/*} host=$1; shift
exec ip netns exec "$(cat "$lab/$host.netns")" unshare --uts sh -c '
    lab=$0 host=$1; shift
    hostname "$host" && mount --bind "$lab/hosts" /etc/hosts || exit 1
    mount --bind "$lab/$host" "$lab/home" || exit 1
    HOME=$lab/home; cd; PATH=$HOME/.cargo/bin:$lab/bin:/usr/sbin:/usr/bin:/sbin:/bin
    export HOME PATH; exec "$@"' "$lab" "$host" "$@"
"#;

const SSH: &str = r#"#!/bin/sh
while :; do
    case $1 in -o) shift 2 ;; --) shift; break ;; -*) shift ;; *) break ;; esac
done
host=$1; shift; exec "${0%/*}/../enter" "$host" sh -c "$*"
"#;

const SCP: &str = r#"#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
exec cp -p -r "$1" "${0%/*}/../${2%:}/"
"#;

/// Two hosts, `node1` and `node2`.
struct Lab {
    place: Folder,
    _hosts: Hosts,
}

impl Lab {
    fn new() -> Option<Self> {
        if !needed::are_there("netns", &["unshare", "mount", "hostname"]) {
            return None;
        }
        let (hosts, place) = (Hosts::join()?, Folder::new());
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("bin")).unwrap();
        fs::create_dir(at("home")).unwrap();
        for (name, text) in [("enter", ENTER), ("bin/ssh", SSH), ("bin/scp", SCP)] {
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(0o755)).unwrap();
        }
        let mut table = "127.0.0.1 localhost\n".to_owned();
        for (index, address) in INSIDE.iter().enumerate() {
            let name = format!("node{}", index + 1);
            table += &format!("{address} {name}\n");
            fs::write(at(&format!("{name}.netns")), &hosts.names[index]).unwrap();
            let programs = at(&name).join(".cargo/bin");
            fs::create_dir_all(&programs).unwrap();
            for program in ["ringrun", "ringfold", "allreduce-perf"] {
                fs::copy(program::binary(program), programs.join(program)).unwrap();
            }
        }
        fs::write(at("hosts"), table).unwrap();
        Some(Self { place, _hosts: hosts })
    }

    /// Starts a line of shell on a host.
    fn start(&self, host: &str, line: &str) -> Job {
        let mut command = Command::new(self.place.path().join("enter"));
        Job::start(command.args([host, "sh", "-c", line]))
    }

    fn run(&self, line: &str) -> Outcome {
        self.start("node1", line).finish(DEADLINE)
    }
}

/// The lines of shell on the page, but for preparations.
fn lines() -> Vec<&'static str> {
    let fences = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = fences.flat_map(str::lines);
    lines.filter(|line| !PREPARATIONS.iter().any(|start| line.starts_with(start))).collect()
}

/// The output of a line that is more than success.
fn is_expected(line: &str, outcome: &Outcome) -> bool {
    let count = |text: &str| outcome.stdout.matches(text).count();
    match line {
        _ if line.ends_with("hostname") => (count("node1\n"), count("node2\n")) == (2, 2),
        _ if line.contains("allreduce-perf") => count("# Out of bounds values : 0 OK") == 1,
        _ if line.contains("printenv") => count("hello\n") == 2,
        _ if line.contains("doctor") => count("ok ") > 0,
        _ => true,
    }
}

#[test]
#[ignore = "wants root, ip, unshare and mount"]
fn the_commands_of_the_page_work() {
    let Some(lab) = Lab::new() else { return };
    let lines = lines();
    assert!(lines.len() > 8, "{lines:?}");
    for line in lines {
        let outcome = lab.run(line);
        assert!(outcome.status.success() && is_expected(line, &outcome), "{line}: {outcome:?}");
    }
    let [ours, theirs] = ["node1", "node2"]
        .map(|host| fs::read(lab.place.path().join(host).join(".ringfold/secret")).unwrap());
    assert!(ours.len() == 64 && ours == theirs);
}

#[test]
#[ignore = "wants root, ip, unshare and mount"]
fn first_errors_are_those_of_the_page() {
    let Some(lab) = Lab::new() else { return };
    for (line, message) in [
        ("ringrun --host node1,node3 hostname", "cannot be resolved"),
        ("ringrun --host node1,node2 nothing-of-this-name", "not found"),
        (
            "ringrun --host node1,node2 --remote-ringrun /nowhere/ringrun hostname",
            "before ringrun answered there",
        ),
        ("ringrun --host node1,node2 --wdir /nowhere hostname", "does not exist"),
        (
            "RINGFOLD_JOIN_TIMEOUT=2 ringrun --host node1,node2 \
             sh -c '[ $RINGFOLD_RANK = 1 ] && sleep 4 || allreduce-perf -b 8 -e 8'",
            "ranks joined within",
        ),
    ] {
        let outcome = lab.run(line);
        assert!(!outcome.status.success() && outcome.stderr.contains(message), "{outcome:?}");
        assert!(PAGE.contains(&format!("`{message}`")), "{message}");
    }
    // Without a launcher, each home makes a secret of its own.
    let rank = |rank: usize| {
        let settings = "WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500 RINGFOLD_JOIN_TIMEOUT=5";
        let line = format!("RANK={rank} {settings} allreduce-perf -b 8 -e 8");
        lab.start(["node1", "node2"][rank], &line)
    };
    let [_, second] = [0, 1].map(rank).map(|job| job.finish(DEADLINE));
    assert!(second.stderr.contains("holds another secret"), "{second:?}");
}
