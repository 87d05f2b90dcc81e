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

use std::time::Duration;

use ringfold_harness::{Folder, Namespaces, Outcome, Ranks};

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
    spaces: Namespaces,
    pub(crate) folder: Folder,
}

impl Rig {
    /// Makes the namespaces. Returns `None`, and prints a note, if that is not possible.
    pub(crate) fn new(wiring: &Wiring) -> Option<Self> {
        let spaces = Namespaces::new(&["a", "b", "s"])?;
        for name in ["a", "b", "s"] {
            // A NIC answers for its own address only, even with both NICs on one bridge.
            for value in ["arp_ignore=1", "arp_announce=2"] {
                spaces.ip(&format!("netns exec @{name} sysctl -qw net.ipv4.conf.all.{value}"));
            }
        }
        let last = wiring.trunks.iter().max().copied().unwrap_or(0);
        for trunk in 0..=last {
            spaces.cable(["s", &format!("t{trunk}x")], ["s", &format!("t{trunk}y")]);
            for (host, end) in [("a", "x"), ("b", "y")] {
                let tbf = format!("tbf rate {}mbit burst 32kb latency 30ms", wiring.rate);
                if !spaces.can(&format!("ip -n @s link add {host}{trunk} type bridge"))
                    || !spaces.can(&format!("tc -n @s qdisc add dev t{trunk}{end} root {tbf}"))
                {
                    return None;
                }
                spaces.ip(&format!("-n @s link set {host}{trunk} up"));
                spaces.ip(&format!("-n @s link set t{trunk}{end} master {host}{trunk}"));
            }
        }
        for (rail, trunk) in wiring.trunks.iter().enumerate() {
            for (host, number, last) in [("a", rail, 1), ("b", wiring.numbers[rail], 2)] {
                let (port, nic) = (format!("p{host}{number}"), format!("rail{number}"));
                spaces.cable(["s", &port], [host, &nic]);
                spaces.ip(&format!("-n @s link set {port} master {host}{trunk}"));
                spaces.ip(&format!("-n @{host} addr add 10.77.{rail}.{last}/24 dev {nic}"));
            }
        }
        for rail in 0..wiring.trunks.len() {
            ["a", "b"].iter().for_each(|it| spaces.wait_for_carrier(it, &format!("rail{rail}")));
        }
        Some(Self { spaces, folder: Folder::new() })
    }

    /// Runs `ringfold` as two ranks, which must succeed, and returns rank 0's output.
    pub(crate) fn ringfold(&self, words: &[&str]) -> Outcome {
        let [first, second] = self.outputs(words);
        assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
        first
    }

    /// Runs `ringfold` as two ranks, and returns their output.
    pub(crate) fn outputs(&self, words: &[&str]) -> [Outcome; 2] {
        let ranks = Ranks::of("ip", 2, |rank, command| {
            let host = ["a", "b"][rank];
            command.args(["netns", "exec", &self.spaces.name(host)]);
            command.arg(env!("CARGO_BIN_EXE_ringfold")).args(words);
            // Rank 0's address is on the first rail. Host b's first interface may be on another.
            command.env("MASTER_ADDR", "10.77.0.1").env("RINGFOLD_HOSTID", host);
        });
        ranks.finish(Duration::from_secs(120)).try_into().unwrap()
    }
}
