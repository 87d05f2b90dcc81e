//! Two network namespaces joined by a cable: two hosts, as far as ringfold can tell.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_tests::{needed, program};
use rustix::process::{Pid, Signal, kill_process};

use crate::perf::DEADLINE;
use crate::place::Place;

/// Each has `eth0`, and nothing else of this machine has a part in it.
pub(crate) struct Hosts {
    pub(crate) names: [String; 2],
    place: Place,
}

/// Their addresses on the cable. There is no way to anywhere else.
pub(crate) const INSIDE: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

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
        let this = Self { names, place: Place::new("hosts") };
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

    /// A command on the first, with a new home and the ranks' log.
    pub(crate) fn on_first(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0]]).arg(program);
        command.env("HOME", self.place.path()).env("RINGFOLD_DEBUG", "INFO");
        command
    }

    /// `ringrun` on the first, for two ranks on either. Nobody can look up the hosts' names.
    pub(crate) fn ringrun(&self) -> Command {
        let mut command = self.on_first(program::binary("ringrun"));
        command.args(["--agent", "ip netns exec", "--host", &self.slots()]);
        command.args(["--rendezvous-addr", INSIDE[0]]);
        command
    }

    /// The same, but told which interface to use and no address.
    pub(crate) fn ringrun_by_interface(&self, name: &str) -> Command {
        let mut command = self.on_first(program::binary("ringrun"));
        command.args(["--agent", "ip netns exec", "--host", &self.slots()]);
        command.env("RINGFOLD_SOCKET_IFNAME", name);
        command
    }

    /// Two on either, as launchers write it.
    pub(crate) fn slots(&self) -> String {
        let [a, b] = &self.names;
        format!("{a}:2,{b}:2")
    }

    /// A program that is called as ssh is. Each host has a home directory of its own.
    pub(crate) fn agent(&self) -> PathBuf {
        let path = self.place.path().join("agent");
        let text = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
                    host=$1; shift; export HOME=${0%/*}/$host; mkdir -p \"$HOME\"\n\
                    exec ip netns exec \"$host\" sh -c \"$*\"\n";
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
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
