//! Network namespaces that stand for hosts and switches.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::needed;

/// The deadline of a cable, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Network namespaces by name. Dropping them deletes them with all their interfaces.
#[derive(Debug)]
pub struct Namespaces {
    prefix: String,
    names: Vec<String>,
}

impl Namespaces {
    /// Makes namespaces with a loopback interface each. Returns `None`, with a note, without the
    /// permission or the program.
    ///
    /// # Panics
    /// As [`needed::are_there`].
    #[must_use]
    pub fn new(names: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !needed::is_root("netns") || !needed::are_there("netns", &["ip"]) {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("rf{}-{number}", std::process::id());
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let this = Self { prefix, names };
        let is_made = |name: &String| {
            this.can(&format!("ip netns add @{name}"))
                && this.can(&format!("ip -n @{name} link set lo up"))
        };
        this.names.iter().all(is_made).then_some(this)
    }

    /// Makes the hosts `h0` and so on, with `eth0` each, and the switch `s` between them. Its port
    /// `p<i>` leads to host `i`, whose address is `<network>.<i + 1>`. Returns `None` as
    /// [`new`](Self::new).
    ///
    /// # Panics
    /// As [`needed::are_there`].
    #[must_use]
    pub fn star(network: &str, hosts: usize) -> Option<Self> {
        let names: Vec<String> = (0..hosts).map(|host| format!("h{host}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).chain(["s"]).collect();
        let this = Self::new(&all)?;
        if !this.can("ip -n @s link add br0 type bridge") {
            return None;
        }
        this.ip("-n @s link set br0 up");
        for (host, name) in names.iter().enumerate() {
            this.cable([name, "eth0"], ["s", &format!("p{host}")]);
            this.ip(&format!("-n @s link set p{host} master br0"));
            this.ip(&format!("-n @{name} addr add {network}.{}/24 dev eth0", host + 1));
        }
        names.iter().for_each(|name| this.wait_for_carrier(name, "eth0"));
        Some(this)
    }

    /// The system's name of a namespace.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Connects two namespaces by a cable between new interfaces, which are up.
    ///
    /// # Panics
    /// As [`ip`](Self::ip).
    pub fn cable(&self, [one, interface]: [&str; 2], [other, far]: [&str; 2]) {
        self.ip(&format!(
            "-n @{one} link add {interface} type veth peer name {far} netns @{other}"
        ));
        self.ip(&format!("-n @{one} link set {interface} up"));
        self.ip(&format!("-n @{other} link set {far} up"));
    }

    /// Waits until an interface is up at both ends. ringfold chooses no interface that is down.
    ///
    /// # Panics
    /// If it stays down.
    pub fn wait_for_carrier(&self, name: &str, interface: &str) {
        let until = Instant::now() + DEADLINE;
        while !self.ip(&format!("-n @{name} link show {interface}")).contains(" state UP ") {
            assert!(Instant::now() < until, "{interface} of {name} stays down");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs `ip` with these words, and returns its output. `@a` stands for the system's name of
    /// namespace `a`.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, line: &str) -> String {
        let output = self.words("ip", line).output().expect("ip is there");
        assert!(output.status.success(), "ip {line}: {output:?}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// Returns whether a program succeeds with these words, which the tests of namespaces need.
    /// `@a` stands for the system's name of namespace `a`.
    ///
    /// # Panics
    /// As [`needed::are_there`].
    #[must_use]
    pub fn can(&self, line: &str) -> bool {
        let (program, rest) = line.split_once(' ').unwrap_or((line, ""));
        let output = self.words(program, rest).output();
        output.is_ok_and(|output| output.status.success()) || needed::skipped("netns", line)
    }

    fn words(&self, program: &str, line: &str) -> Command {
        let word =
            |word: &str| word.strip_prefix('@').map_or_else(|| word.into(), |it| self.name(it));
        let mut command = Command::new(program);
        command.args(line.split_whitespace().map(word));
        command
    }

    /// Returns a command that runs a program in a namespace.
    #[must_use]
    pub fn command(&self, name: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.words("ip", &format!("netns exec @{name}"));
        command.arg(program);
        command
    }

    /// Moves the calling thread, and all that it starts, to a namespace.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn enter(&self, name: &str) {
        let file = File::open(format!("/run/netns/{}", self.name(name))).expect("it is there");
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), network).expect("it may be entered");
    }

    /// The processes in a namespace.
    ///
    /// # Panics
    /// As [`ip`](Self::ip).
    #[must_use]
    pub fn pids(&self, name: &str) -> Vec<u32> {
        let text = self.ip(&format!("netns pids @{name}"));
        text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // The cables go with the namespaces. Some of these may not exist.
        for name in &self.names {
            self.words("ip", &format!("netns del @{name}")).output().ok();
        }
    }
}
