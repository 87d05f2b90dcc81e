//! LLDP between network namespaces, which act as switches and hosts. Each has its own `lldpd`.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_harness::{Folder, Namespaces, Outcome, needed};
use ringfold_topology::discover::files::{self, Read};
use ringfold_topology::fabric::{Fabric, PortId, classify};
use rustix::process::{Pid, Signal, kill_process};

/// The deadline of each step.
const DEADLINE: Duration = Duration::from_secs(60);

const PROGRAMS: &[&str] = &["lldpd", "lldpctl", "lldpcli", "ip", "timeout"];

/// Namespaces with a daemon in each. Dropping it ends them.
struct Net {
    daemons: Vec<Child>,
    spaces: Namespaces,
    names: Vec<String>,
    folder: Folder,
}

impl Net {
    fn new(names: Vec<String>) -> Option<Self> {
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let spaces = Namespaces::new(&all)?;
        Some(Self { daemons: Vec::new(), spaces, names, folder: Folder::new() })
    }

    /// Starts a daemon in a namespace. With `forwards`, it announces itself as a switch.
    fn daemon(&mut self, name: &str, forwards: bool) {
        let (space, socket) = (self.spaces.name(name), self.folder.at(name));
        if forwards {
            self.spaces.ip(&format!("netns exec @{name} sysctl -qw net.ipv4.ip_forward=1"));
        }
        let log = fs::File::create(self.folder.at(&format!("{name}.log"))).unwrap();
        // The daemon announces its host name, so each gets its own.
        let start = format!("echo {name} > /proc/sys/kernel/hostname; exec lldpd -d -u {socket}");
        let daemon = Command::new("timeout")
            .args(["120", "ip", "netns", "exec", &space, "unshare", "--uts", "sh", "-c", &start])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemons.push(daemon);
        let start = Instant::now();
        while !fs::exists(&socket).unwrap() {
            assert!(start.elapsed() < DEADLINE, "{name}'s lldpd does not start");
            thread::sleep(Duration::from_millis(20));
        }
        self.client(name, "lldpcli", &["configure", "lldp", "tx-interval", "2"]);
    }

    /// Resumes a daemon. It starts paused and runs a client that resumes it, but that client may
    /// fail while another one is connected.
    fn resume(&self, name: &str) {
        self.client(name, "lldpcli", &["resume"]);
    }

    fn client(&self, name: &str, program: &str, arguments: &[&str]) -> String {
        let mut command = self.spaces.command(name, program);
        Outcome::of(command.args(["-u", &self.folder.at(name)]).args(arguments)).printed()
    }

    /// Returns the output of `lldpctl` on a host, once it has a neighbour on all interfaces.
    fn heard(&self, host: &str, form: &str, interfaces: usize) -> String {
        let start = Instant::now();
        loop {
            self.names.iter().for_each(|name| self.resume(name));
            let text = self.client(host, "lldpctl", &["-f", form]);
            let Ok(Read::Lldp(heard)) = files::read(host, text.as_bytes()) else {
                panic!("{text}");
            };
            let names = heard.neighbours.iter().filter(|heard| heard.name.starts_with("sw"));
            if names.filter(|heard| heard.is_switch).count() == interfaces {
                return text;
            }
            let log = || fs::read_to_string(self.folder.at(&format!("{host}.log")));
            assert!(start.elapsed() < DEADLINE, "{host} hears {heard:?}\n{}", log().unwrap());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns the output of `lldpcli` about a host's own ports, once it has the host's name.
    fn local(&self, host: &str, form: &str) -> String {
        let start = Instant::now();
        loop {
            self.resume(host);
            let text = self.client(host, "lldpcli", &["-f", form, "show", "interfaces"]);
            if text.contains(&format!("\"{host}\"")) {
                return text;
            }
            assert!(start.elapsed() < DEADLINE, "{host} is {text}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
            pid.map(|pid| kill_process(pid, Signal::TERM));
            daemon.wait().ok();
        }
    }
}

/// Number of hosts. Interface `r` of every host is on switch `r`; the last host's are swapped.
const HOSTS: usize = 4;
/// Number of interfaces of each host, and of switches.
const RAILS: usize = 2;

fn switch_of(host: usize, rail: usize) -> usize {
    if host == HOSTS - 1 { RAILS - 1 - rail } else { rail }
}

fn mac(host: usize, rail: usize) -> u64 {
    u64::try_from(0x0200_0000_0000 + (host << 8) + rail).unwrap()
}

fn are_right(fabric: &Fabric, id: impl Fn(usize, usize) -> PortId) {
    assert_eq!(fabric.ports.len(), HOSTS * RAILS);
    for host in 0..HOSTS {
        for rail in 0..RAILS {
            let port = fabric.ports.iter().find(|port| port.id == id(host, rail)).unwrap();
            assert_eq!((&port.host, &port.device), (&format!("h{host}"), &format!("eth{rail}")));
            let (switch, number) = port.attached.unwrap();
            let name = &fabric.switches[switch].name;
            assert_eq!(*name, format!("sw{}", switch_of(host, rail)));
            assert_eq!(usize::from(number), host + 1);
        }
    }
    // Ports with one rail are on one switch.
    let found = classify(fabric);
    for (one, (place, _)) in fabric.ports.iter().zip(&found.places) {
        for (other, (at, _)) in fabric.ports.iter().zip(&found.places) {
            let is_one = place.is_some() && place == at;
            let switch = |port: &ringfold_topology::fabric::EndPort| port.attached.unwrap().0;
            assert!(!is_one || switch(one) == switch(other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn hosts_see_their_switches() {
    if !needed::is_root("lldpd") || !needed::are_there("lldpd", PROGRAMS) {
        return;
    }
    if !needed::succeeds("lldpd", &["unshare", "-n", "ip", "link", "add", "type", "veth"]) {
        return;
    }
    let switches: Vec<String> = (0..RAILS).map(|rail| format!("sw{rail}")).collect();
    let hosts: Vec<String> = (0..HOSTS).map(|host| format!("h{host}")).collect();
    let names = switches.iter().chain(&hosts).cloned().collect();
    let Some(mut net) = Net::new(names) else { return };
    for (host, name) in hosts.iter().enumerate() {
        for rail in 0..RAILS {
            let bytes = mac(host, rail).to_le_bytes();
            let bytes = bytes[..6].iter().rev().map(|byte| format!("{byte:02x}"));
            let mac = bytes.collect::<Vec<_>>().join(":");
            let (interface, far) = (format!("eth{rail}"), format!("swp{}", host + 1));
            let switch = &switches[switch_of(host, rail)];
            net.spaces.cable([name, &interface], [switch, &far]);
            net.spaces.ip(&format!("-n @{name} link set {interface} address {mac}"));
        }
    }
    for name in &switches {
        net.daemon(name, true);
    }
    for name in &hosts {
        net.daemon(name, false);
    }
    for form in ["json", "json0"] {
        let mut alone = Vec::new();
        let mut with_local = Vec::new();
        for name in &hosts {
            let text = net.heard(name, form, RAILS);
            let local = net.local(name, form);
            with_local.push((format!("some/{name}.txt"), format!("{text}{local}").into_bytes()));
            alone.push((format!("some/{name}.json"), text.into_bytes()));
        }
        let named =
            |host: usize, rail: usize| PortId::named(&format!("h{host}"), &format!("eth{rail}"));
        are_right(&files::fabric(&alone).unwrap(), named);
        let by_mac = |host, rail| PortId::Mac(mac(host, rail));
        are_right(&files::fabric(&with_local).unwrap(), by_mac);
    }
}
