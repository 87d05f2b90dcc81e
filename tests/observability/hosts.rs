//! Two hosts of one name and the same process numbers, as `ringfold top` shows them.

use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

use ringfold_harness::{Job, Namespaces, Outcome, Ranks, program};
use serde_json::Value;

use crate::LONG;

/// Hosts with processes and a `/dev/shm` of their own.
pub(crate) struct Hosts {
    /// The first process of each host.
    holders: Vec<(Job, u32)>,
    /// How to enter the namespaces of that process.
    enter: &'static [&'static str],
    _network: Namespaces,
}

impl Hosts {
    /// Makes two hosts, with the addresses `network` .1 and .2. The clock of the second one may be
    /// so many seconds ahead.
    pub(crate) fn new(network: &str, ahead: Option<&str>) -> Option<Self> {
        let network = Namespaces::star(network, 2)?;
        let hold = |name: &str, ahead: Option<&str>| {
            let mut command = network.command(name, "unshare");
            let script =
                "mount -t tmpfs -o mode=1777 tmpfs /dev/shm && echo ready && exec sleep 1000";
            if let Some(ahead) = ahead {
                command.args(["-T", "--monotonic", ahead]);
            }
            command.args(["-m", "-p", "-f", "--mount-proc", "sh", "-c", script]);
            let holder = Job::start(&mut command);
            holder.line("ready");
            let children = format!("/proc/{0}/task/{0}/children", holder.id());
            let children = std::fs::read_to_string(children).unwrap();
            (holder, children.trim().parse().unwrap())
        };
        let enter: &[_] =
            if ahead.is_some() { &["-m", "-p", "-n", "-T"] } else { &["-m", "-p", "-n"] };
        let holders = vec![hold("h0", None), hold("h1", ahead)];
        Some(Self { holders, enter, _network: network })
    }

    /// A command that runs a program on a host.
    pub(crate) fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holders[host].1.to_string()]).args(self.enter).arg("--");
        command.arg(program);
        command
    }

    /// Starts rank `rank` of four with these arguments of the program `rank`. The first two are on
    /// the first host, whose address is `first`.
    pub(crate) fn start(&self, first: &str, rank: usize, args: &[&str]) -> Command {
        let mut command = self.command(rank / 2, program::own("rank"));
        command.args(args).env("RANK", rank.to_string()).env("WORLD_SIZE", "4");
        command.env("MASTER_ADDR", first).env("MASTER_PORT", "29517");
        command.env("RINGFOLD_SECRET", ringfold_harness::secret());
        command
    }

    /// The one job as a look from a host shows it, the exit status, and how long the look took.
    fn look(&self, host: usize) -> (Value, i32, Duration) {
        let begin = Instant::now();
        let mut command = self.command(host, program::binary("ringfold"));
        let seen = Outcome::of(command.args(["top", "--json"]));
        let took = begin.elapsed();
        let all: Value =
            serde_json::from_str(&seen.stdout).unwrap_or_else(|e| panic!("{e}: {seen:?}"));
        (all["jobs"][0].clone(), seen.code(), took)
    }
}

#[test]
fn all_hosts_are_seen_from_each() {
    let Some(hosts) = Hosts::new("10.77.4", None) else { return };
    // Rank 3 strays, on the second host.
    let start = |rank| Job::start(&mut hosts.start("10.77.4.1", rank, &["stray", "sleep"]));
    let ranks = Ranks((0..4).map(start).collect());
    ranks.wait_for("started");
    let begin = Instant::now();
    for host in [0, 1] {
        loop {
            let (job, status, took) = hosts.look(host);
            let late = job["late"].as_array().unwrap();
            assert!(late.iter().all(|rank| rank == 3), "{job}");
            if status == 12 {
                let sentence = job["sentence"].as_str().unwrap();
                let of_host =
                    if host == 0 { " at 10.77.4.2) has been" } else { ", this host) has been" };
                assert!(
                    sentence.contains(of_host) && sentence.contains("3 ranks wait"),
                    "{sentence}"
                );
                let members = job["groups"][0]["ranks"].as_array().unwrap();
                let mut seen: Vec<_> = members.iter().map(|it| it["rank"].as_u64()).collect();
                seen.sort_unstable();
                assert_eq!(seen, [Some(0), Some(1), Some(2), Some(3)], "{job}");
                assert_eq!(job["unseen"], Value::Array(Vec::new()), "{job}");
                let pids = |rank: u64| {
                    members.iter().find(|it| it["rank"] == rank).map(|it| it["pid"].clone())
                };
                println!("seen from host {host} in {took:?}; PIDs {:?} and {:?}", pids(0), pids(2));
                break;
            }
            assert!(begin.elapsed() < LONG, "{job}");
        }
    }
    // The second host stops.
    let stop = Outcome::of(hosts.command(1, "sh").args(["-c", "kill -STOP -1"]));
    assert!(stop.status.success(), "{stop:?}");
    let (job, status, took) = hosts.look(0);
    println!("with a stopped host in {took:?}");
    assert_eq!(job["unseen"][0], "10.77.4.2 does not answer: ranks 2 3 are not seen", "{job}");
    assert_eq!((status, &job["late"]), (12, &serde_json::json!([2, 3])), "{job}");
    let (job, status, _) = hosts.look(1);
    assert_eq!((status, &job["late"]), (12, &serde_json::json!([2, 3])), "{job}");
    assert!(job["unseen"][0].as_str().unwrap().contains("other hosts are not seen"), "{job}");
    // Another user.
    let program = program::binary("ringfold");
    let mut other = hosts.command(0, "setpriv");
    other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
    let refused = Outcome::of(other.args(["top", job["job"].as_str().unwrap()]));
    assert!(refused.code() == 2 && refused.stderr.contains("permission denied"), "{refused:?}");
}
