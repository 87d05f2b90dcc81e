//! Two network namespaces as hosts, and a third as the switches between them.
//!
//! ```text
//! host a                switches                   host b
//! rail0 --- bridge a0 === trunk 0 === bridge b0 --- rail1
//! rail1 ---                                     --- rail0
//! rail2 --- bridge a1 === trunk 1 === bridge b1 --- rail2
//! ```
//!
//! Rails of one trunk share its rate. Each rail is an IP subnet of its own. On host b the
//! interfaces carry other numbers.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

/// The wiring of one job.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    /// The trunk of each rail.
    pub(crate) trunks: Vec<usize>,
    /// The number of each rail's interface on host b.
    pub(crate) numbers: Vec<usize>,
    /// Megabits per second of each trunk.
    pub(crate) rate: usize,
}

pub(crate) struct Rig {
    id: String,
}

impl Rig {
    /// Makes the namespaces. Returns `None`, and prints a note, if that is not possible.
    pub(crate) fn new(wiring: &Wiring) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("rfm{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let this = Self { id };
        let lines = this.lines(wiring);
        if !lines.iter().all(|line| ip(line).is_some()) {
            return skipped();
        }
        for trunk in wiring.trunks.iter().max().map_or(0..0, |last| 0..last + 1) {
            for end in ["x", "y"] {
                if !this.throttle(&format!("t{trunk}{end}"), wiring.rate) {
                    return skipped();
                }
            }
        }
        this.wait_for_carrier(wiring.trunks.len());
        Some(this)
    }

    fn lines(&self, wiring: &Wiring) -> Vec<String> {
        let switch = self.name("s");
        let mut lines = Vec::new();
        for name in ["a", "b", "s"].map(|part| self.name(part)) {
            lines.push(format!("netns add {name}"));
            lines.push(format!("-n {name} link set lo up"));
            // A NIC answers for its own address only, even with both NICs on one bridge.
            for (key, value) in [("arp_ignore", 1), ("arp_announce", 2)] {
                let key = format!("net.ipv4.conf.all.{key}={value}");
                lines.push(format!("netns exec {name} sysctl -qw {key}"));
            }
        }
        let last = wiring.trunks.iter().max().copied().unwrap_or(0);
        for trunk in 0..=last {
            lines.push(format!("-n {switch} link add t{trunk}x type veth peer name t{trunk}y"));
            for (host, end) in [("a", "x"), ("b", "y")] {
                lines.push(format!("-n {switch} link add {host}{trunk} type bridge"));
                lines.push(format!("-n {switch} link set {host}{trunk} up"));
                let end = format!("t{trunk}{end}");
                lines.push(format!("-n {switch} link set {end} master {host}{trunk} up"));
            }
        }
        for (rail, trunk) in wiring.trunks.iter().enumerate() {
            for (host, number, last) in [("a", rail, 1), ("b", wiring.numbers[rail], 2)] {
                let (name, port) = (self.name(host), format!("p{host}{number}"));
                let nic = format!("rail{number}");
                let veth = format!("link add {port} type veth peer name {nic} netns {name}");
                lines.push(format!("-n {switch} {veth}"));
                lines.push(format!("-n {switch} link set {port} master {host}{trunk} up"));
                lines.push(format!("-n {name} addr add 10.77.{rail}.{last}/24 dev {nic}"));
                lines.push(format!("-n {name} link set {nic} up"));
            }
        }
        lines
    }

    fn throttle(&self, device: &str, rate: usize) -> bool {
        let tbf = format!("tbf rate {rate}mbit burst 32kb latency 30ms");
        let line = format!("-n {} qdisc add dev {device} root {tbf}", self.name("s"));
        run("tc", &line).is_some()
    }

    fn wait_for_carrier(&self, rails: usize) {
        let until = Instant::now() + DEADLINE;
        let is_up = |(host, rail): (&str, usize)| {
            let line = format!("-n {} link show rail{rail}", self.name(host));
            ip(&line).is_some_and(|link| link.contains(" state UP "))
        };
        let all = || (0..rails).flat_map(|rail| [("a", rail), ("b", rail)]);
        while !all().all(is_up) {
            assert!(Instant::now() < until, "a cable of {} stays dead", self.id);
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn name(&self, part: &str) -> String {
        format!("{}{part}", self.id)
    }

    /// Runs `ringfold` as two ranks, which must succeed, and returns rank 0's output.
    pub(crate) fn ringfold(&self, words: &[&str]) -> Output {
        let [first, second] = self.outputs(words);
        assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
        first
    }

    /// Runs `ringfold` as two ranks, and returns their output.
    pub(crate) fn outputs(&self, words: &[&str]) -> [Output; 2] {
        let start = |rank: usize, host: &str| -> Child {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.name(host), "timeout", "120"]);
            command.arg(env!("CARGO_BIN_EXE_ringfold")).args(words);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
            command.env("MASTER_ADDR", "10.77.0.1").env("MASTER_PORT", "29507");
            command.env("RINGFOLD_SECRET", &"5ec2e7".repeat(11)[..64]);
            command.env("RINGFOLD_HOSTID", ["a", "b"][rank]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        // Rank 0's address is on the first rail. Host b's first interface may be on another rail.
        let (first, second) = (start(0, "a"), start(1, "b"));
        let second = second.wait_with_output().unwrap();
        let first = first.wait_with_output().unwrap();
        [first, second]
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The cables go with the namespaces. Some of these may not exist.
        for part in ["a", "b", "s"] {
            ip(&format!("netns del {}", self.name(part)));
        }
    }
}

fn skipped<T>() -> Option<T> {
    #[expect(clippy::disallowed_methods, reason = "asks whether a skip is a failure")]
    let required = std::env::var("RINGFOLD_TEST_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != "netns"), "cannot make namespaces");
    // Written to stderr directly, because the harness captures `eprintln`.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: netns, which needs root, ip, tc, bridges and tbf").unwrap();
    None
}

fn ip(line: &str) -> Option<String> {
    run("ip", line)
}

fn run(program: &str, line: &str) -> Option<String> {
    let output = Command::new(program).args(line.split(' ')).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}
