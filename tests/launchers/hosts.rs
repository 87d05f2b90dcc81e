//! Two network namespaces with a cable between them, which ringfold treats as two hosts.

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

use crate::folder::Folder;
use crate::perf::DEADLINE;

/// Two hosts, each with `eth0`. They have no connection to the rest of this machine.
pub(crate) struct Hosts {
    pub(crate) names: [String; 2],
    folder: Folder,
}

/// The hosts' addresses on the cable. There is no route to anywhere else.
pub(crate) const INSIDE: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

impl Hosts {
    /// Makes the hosts. Returns `None` without the permission or the programs.
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
        let this = Self { names, folder: Folder::new("hosts") };
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

    /// Waits until both interfaces are up. ringfold chooses no interface that is down.
    fn wait_for_carrier(&self) {
        let is_up = |name: &String| ip(&format!("-n {name} link show eth0")).contains(" state UP ");
        let until = Instant::now() + DEADLINE;
        while !self.names.iter().all(is_up) {
            assert!(Instant::now() < until, "the cable between {:?} stays dead", self.names);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Gives each host these addresses, as `ADDRESS/BITS dev INTERFACE`, in place of those on the
    /// cable. Each host reaches the `routed` address of the other one over the cable.
    pub(crate) fn move_to(&self, addresses: [&[&str]; 2], routed: Option<[&str; 2]>) {
        for (name, addresses) in self.names.iter().zip(addresses) {
            ip(&format!("-n {name} addr flush dev eth0 scope global"));
            addresses.iter().for_each(|it| drop(ip(&format!("-n {name} addr add {it}"))));
        }
        let Some([a, b]) = routed else { return };
        for (name, to, own) in [(&self.names[0], b, a), (&self.names[1], a, b)] {
            ip(&format!("-n {name} route add {to}/32 dev eth0 src {own}"));
        }
    }

    /// Adds an interface that comes before the cable, with the same link-local address on both
    /// hosts, as the port of a management controller has.
    pub(crate) fn add_management(&self) {
        for name in &self.names {
            ip(&format!("-n {name} link add bmc0 type veth peer name bmc1"));
            ip(&format!("-n {name} addr add 169.254.3.1/24 dev bmc0"));
            ["bmc0", "bmc1"].iter().for_each(|it| drop(ip(&format!("-n {name} link set {it} up"))));
        }
    }

    /// Returns `ringrun` on the first host as [`ringrun`](Self::ringrun) does, at this address.
    pub(crate) fn ringrun_at(&self, address: &str) -> Command {
        let mut command = self.on_first(program::binary("ringrun"));
        command.args(["--agent", "ip netns exec", "--host", &self.slots()]);
        command.args(["--rendezvous-addr", address]).env("RINGFOLD_JOIN_TIMEOUT", "60");
        command
    }

    /// Returns a command on the first host, with a new home and the log of the ranks.
    pub(crate) fn on_first(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0]]).arg(program);
        command.env("HOME", self.folder.path()).env("RINGFOLD_DEBUG", "INFO");
        command
    }

    /// Returns `ringrun` on the first host, for two ranks on each. The hosts' names do not resolve.
    pub(crate) fn ringrun(&self) -> Command {
        self.ringrun_at(INSIDE[0])
    }

    /// Returns the same command with the name of an interface in place of an address.
    pub(crate) fn ringrun_by_interface(&self, name: &str) -> Command {
        let mut command = self.on_first(program::binary("ringrun"));
        command.args(["--agent", "ip netns exec", "--host", &self.slots()]);
        command.env("RINGFOLD_SOCKET_IFNAME", name);
        command
    }

    /// Returns the host list of launchers for two ranks on each host.
    pub(crate) fn slots(&self) -> String {
        let [a, b] = &self.names;
        format!("{a}:2,{b}:2")
    }

    /// Returns a program with the command line of ssh. Each host has its own home directory.
    pub(crate) fn agent(&self) -> PathBuf {
        let path = self.folder.path().join("agent");
        let text = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
                    host=$1; shift; export HOME=${0%/*}/$host; mkdir -p \"$HOME\"\n\
                    exec ip netns exec \"$host\" sh -c \"$*\"\n";
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Kills a process on the second host.
    pub(crate) fn kill(&self, pid: i32) {
        let there = pids(&self.names[1]);
        assert!(there.contains(&pid), "{pid} is not on {}: {there:?}", self.names[1]);
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Checks that no process is left on the hosts.
    pub(crate) fn assert_deserted(&self) {
        for name in &self.names {
            assert_eq!(pids(name), [0; 0], "on {name}");
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The cable goes with the namespaces. One of them may not exist.
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
