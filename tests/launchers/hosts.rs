//! Two network namespaces with a cable between them, which ringfold treats as two hosts.

use std::ffi::OsStr;
use std::process::Command;

use ringfold_harness::{Folder, Namespaces, kill, program};
use rustix::process::Signal;

/// Two hosts, each with `eth0`. They have no connection to the rest of this machine.
pub(crate) struct Hosts {
    pub(crate) names: [String; 2],
    spaces: Namespaces,
    folder: Folder,
}

/// The hosts' addresses on the cable. There is no route to anywhere else.
pub(crate) const INSIDE: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

impl Hosts {
    /// Makes the hosts. Returns `None` without the permission or the programs.
    pub(crate) fn join() -> Option<Self> {
        let spaces = Namespaces::new(&["a", "b"])?;
        spaces.cable(["a", "eth0"], ["b", "eth0"]);
        for (name, address) in ["a", "b"].into_iter().zip(INSIDE) {
            spaces.ip(&format!("-n @{name} addr add {address}/24 dev eth0"));
            spaces.wait_for_carrier(name, "eth0");
        }
        let names = ["a", "b"].map(|name| spaces.name(name));
        Some(Self { names, spaces, folder: Folder::new() })
    }

    /// Runs `ip`; the hosts are `@a` and `@b`.
    pub(crate) fn ip(&self, line: &str) {
        self.spaces.ip(line);
    }

    /// Gives each host these addresses, as `ADDRESS/BITS dev INTERFACE`, in place of those on the
    /// cable. Each host reaches the `routed` address of the other one over the cable.
    pub(crate) fn move_to(&self, addresses: [&[&str]; 2], routed: Option<[&str; 2]>) {
        for (name, addresses) in ["a", "b"].into_iter().zip(addresses) {
            self.ip(&format!("-n @{name} addr flush dev eth0 scope global"));
            addresses.iter().for_each(|it| self.ip(&format!("-n @{name} addr add {it}")));
        }
        let Some([a, b]) = routed else { return };
        for (name, to, own) in [("a", b, a), ("b", a, b)] {
            self.ip(&format!("-n @{name} route add {to}/32 dev eth0 src {own}"));
        }
    }

    /// Adds an interface that comes before the cable, with the same link-local address on both
    /// hosts, as the port of a management controller has.
    pub(crate) fn add_management(&self) {
        for name in ["a", "b"] {
            self.spaces.cable([name, "bmc0"], [name, "bmc1"]);
            self.ip(&format!("-n @{name} addr add 169.254.3.1/24 dev bmc0"));
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
        let mut command = self.spaces.command("a", program);
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
    pub(crate) fn agent(&self) -> String {
        let text = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
                    host=$1; shift; export HOME=${0%/*}/$host; mkdir -p \"$HOME\"\n\
                    exec ip netns exec \"$host\" sh -c \"$*\"\n";
        self.folder.program("agent", text)
    }

    /// Kills a process on the second host.
    pub(crate) fn kill(&self, pid: u32) {
        let there = self.spaces.pids("b");
        assert!(there.contains(&pid), "{pid} is not on {}: {there:?}", self.names[1]);
        kill(pid, Signal::KILL);
    }

    /// Checks that no process is left on the hosts.
    pub(crate) fn assert_deserted(&self) {
        for name in ["a", "b"] {
            assert_eq!(self.spaces.pids(name), [0; 0], "on {name}");
        }
    }
}
