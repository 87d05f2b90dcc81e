//! Two network namespaces joined by a cable: two hosts, as far as ringfold can tell.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_tests::program;
use rustix::process::{Pid, Signal, kill_process};

use crate::needed;
use crate::perf::{DEADLINE, perf};
use crate::place::Place;

/// Each has `eth0`, and nothing else of this machine has a part in it.
pub(crate) struct Hosts {
    pub(crate) names: [String; 2],
    home: Place,
}

const INSIDE: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

impl Hosts {
    /// `None` where this may not be done.
    pub(crate) fn join() -> Option<Self> {
        if !needed::is_root("netns") || !needed::are_there("netns", &["ip"]) {
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("rf{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        if !needed::succeeds("netns", &["ip", "netns", "add", &format!("{id}a")]) {
            return None;
        }
        let names = [format!("{id}a"), format!("{id}b")];
        let this = Self { names, home: Place::new("home") };
        let [a, b] = &this.names;
        ip(&format!("netns add {b}"));
        ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"));
        for (name, address) in this.names.iter().zip(INSIDE) {
            ip(&format!("-n {name} addr add {address}/24 dev eth0"));
            ip(&format!("-n {name} link set eth0 up"));
            ip(&format!("-n {name} link set lo up"));
        }
        this.wait_for_carrier();
        Some(this)
    }

    /// Until then nobody would choose the interface.
    fn wait_for_carrier(&self) {
        let is_up = |name: &String| ip(&format!("-n {name} link show eth0")).contains(" state UP ");
        let until = Instant::now() + DEADLINE;
        while !self.names.iter().all(is_up) {
            assert!(Instant::now() < until, "the cable between {:?} stays dead", self.names);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// `ringrun` on the first, of allreduce-perf as two ranks on either.
    pub(crate) fn ringrun(&self, args: &[&str]) -> Command {
        let [a, b] = &self.names;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", a]).arg(program::binary("ringrun"));
        command.args(["--agent", "ip netns exec", "--rendezvous-addr", INSIDE[0]]);
        command.args(["--host", &format!("{a}:2,{b}:2")]).arg(perf()).args(args);
        command.env("HOME", self.home.path()).env("RINGFOLD_DEBUG", "INFO");
        command
    }

    /// Kills a process of the second.
    pub(crate) fn kill(&self, pid: i32) {
        let there = pids(&self.names[1]);
        assert!(there.contains(&pid), "{pid} is not on {}: {there:?}", self.names[1]);
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Nothing runs there any more.
    pub(crate) fn assert_deserted(&self) {
        for name in &self.names {
            assert_eq!(pids(name), [0; 0], "on {name}");
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The cable goes with its ends. One of them may not have come to be.
        for name in &self.names {
            Command::new("ip").args(["netns", "del", name]).status().ok();
        }
    }
}

fn pids(name: &str) -> Vec<i32> {
    let output = Command::new("ip").args(["netns", "pids", name]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn ip(line: &str) -> String {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
