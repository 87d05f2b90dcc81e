//! Hosts that can lose power: network namespaces that share a switch. A thread enters one, and
//! everything that it starts is there.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::world::TIME_LIMIT;

/// Several hosts and their switch. The switch has the port `p<i>` for host `i`, whose address ends
/// with `i + 1`.
pub(crate) struct Hosts {
    id: String,
    network: &'static str,
    count: usize,
}

impl Hosts {
    /// `network` is the prefix of the addresses, as in `10.0.0`. Prints a skip and returns `None`
    /// without permission. Fails if the environment requires namespaces.
    pub(crate) fn new(network: &'static str, count: usize) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let this = Self { id: format!("rfp{}-{number}", std::process::id()), network, count };
        if this.set_up() {
            this.wait_for_carrier();
            return Some(this);
        }
        #[expect(clippy::disallowed_methods, reason = "asks whether a skip is a failure")]
        let required = std::env::var("RINGFOLD_TEST_REQUIRE").unwrap_or_default();
        assert!(required.split(',').all(|name| name != "netns"), "cannot make namespaces");
        // Not `eprintln!`, because the test harness hides its output.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: netns, which needs root and ip").unwrap();
        None
    }

    pub(crate) fn address(&self, host: usize) -> String {
        format!("{}.{}", self.network, host + 1)
    }

    /// Moves the calling thread to that host.
    pub(crate) fn enter(&self, host: usize) {
        let namespace = File::open(format!("/run/netns/{}", self.name(host))).unwrap();
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network).unwrap();
    }

    /// Drops all packets of the host from now on. No host is told.
    pub(crate) fn cut_power(&self, host: usize) {
        assert!(ip(&format!("-n {} link set p{host} down", self.switch())).is_some());
    }

    /// Delivers the packets of the host again, old ones too.
    pub(crate) fn restore_power(&self, host: usize) {
        assert!(ip(&format!("-n {} link set p{host} up", self.switch())).is_some());
    }

    fn set_up(&self) -> bool {
        let switch = self.switch();
        let mut lines = vec![
            format!("netns add {switch}"),
            format!("-n {switch} link add br0 type bridge"),
            format!("-n {switch} link set br0 up"),
        ];
        for host in 0..self.count {
            let (name, address) = (self.name(host), self.address(host));
            lines.extend([
                format!("netns add {name}"),
                format!("-n {switch} link add p{host} type veth peer name eth0 netns {name}"),
                format!("-n {switch} link set p{host} master br0 up"),
                format!("-n {name} addr add {address}/24 dev eth0"),
                format!("-n {name} link set eth0 up"),
                format!("-n {name} link set lo up"),
            ]);
        }
        lines.iter().all(|line| ip(line).is_some())
    }

    fn wait_for_carrier(&self) {
        let until = Instant::now() + TIME_LIMIT;
        let is_up = |host| {
            let link = ip(&format!("-n {} link show eth0", self.name(host)));
            link.is_some_and(|link| link.contains(" state UP "))
        };
        while !(0..self.count).all(is_up) {
            assert!(Instant::now() < until, "a link does not come up");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn switch(&self) -> String {
        format!("{}s", self.id)
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.id)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Deleting the namespaces deletes the cables. Some namespaces may not exist.
        for name in (0..self.count).map(|host| self.name(host)).chain([self.switch()]) {
            ip(&format!("netns del {name}"));
        }
    }
}

/// Runs `ip` and returns its output, if it succeeds.
fn ip(line: &str) -> Option<String> {
    let output = Command::new("ip").args(line.split(' ')).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}
