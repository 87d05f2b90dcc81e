//! The lab with RDMA devices: the guest of `tests/rdma-vm`, or the one that `RINGFOLD_TEST_RDMA`
//! names.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringfold_harness::{Job, Outcome, needed};

/// Number of hosts. `rxe_h0r0` is host 0's device on rail 0, with the address 10.10.0.1.
pub(crate) const HOSTS: usize = 2;
/// Number of rails.
pub(crate) const RAILS: usize = 2;

/// The deadline of a command on an emulated processor. The guest has a shorter limit of its own.
const DEADLINE: Duration = Duration::from_secs(700);

/// The exit status of a lab that is not available here.
const MISSING: i32 = 77;

/// Runs `command` in the lab to its end. Returns `None` without a lab.
pub(crate) fn run(command: &[&str]) -> Option<Outcome> {
    run_by(&elsewhere().or_else(guest)?, command)
}

/// Runs `command` in the guest of `tests/rdma-vm`, even with another lab.
pub(crate) fn run_in_guest(command: &[&str]) -> Option<Outcome> {
    run_by(&guest()?, command)
}

/// Runs a shell script in the lab, which must succeed.
pub(crate) fn script(text: &str) -> Option<Outcome> {
    let outcome = run(&["sh", "-euc", text])?;
    assert!(outcome.status.success(), "{outcome:?}");
    Some(outcome)
}

fn run_by(words: &[String], command: &[&str]) -> Option<Outcome> {
    let mut lab = Command::new(&words[0]);
    lab.args(&words[1..]).args(command);
    let outcome = Job::start(&mut lab).finish(DEADLINE);
    if outcome.status.code() != Some(MISSING) {
        return Some(outcome);
    }
    let why = outcome.stderr.lines().next().unwrap_or(&words[0]);
    let why = why.strip_prefix("rdma-vm: ").unwrap_or(why);
    needed::skipped("rdma-vm", why).then_some(outcome)
}

/// Returns the command of `RINGFOLD_TEST_RDMA`, which runs another one in its lab.
fn elsewhere() -> Option<Vec<String>> {
    #[expect(clippy::disallowed_methods, reason = "a setting of this suite")]
    let words = std::env::var("RINGFOLD_TEST_RDMA").ok()?;
    let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// Returns the command of the guest, if Python is installed.
fn guest() -> Option<Vec<String>> {
    if !needed::are_there("rdma-vm", &["python3"]) {
        return None;
    }
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("rdma-vm/run");
    let run = run.to_str().expect("a path of UTF-8");
    let (hosts, rails) = (HOSTS.to_string(), RAILS.to_string());
    Some([run, "--hosts", &hosts, "--rails", &rails, "--"].map(str::to_owned).into())
}

/// Defines the shell function `join`, which adds a host with a number to the lab.
pub(crate) const JOIN: &str = r#"
    join() {
        for rail in 0 1; do
            nic=h$1r$rail net=10.1$rail.0 own=10.1$rail.0.$(($1 + 1))
            table=$((5000 + 10 * $1 + rail))
            ip link add $nic mtu 4200 type veth peer name p$1r$rail mtu 4200
            ip link set p$1r$rail master rail$rail up
            for conf in rp_filter:0 accept_local:1 arp_ignore:1 arp_announce:2; do
                echo ${conf#*:} > /proc/sys/net/ipv4/conf/$nic/${conf%:*}
            done
            ip link set $nic up
            ip addr add $own/24 dev $nic noprefixroute
            ip route add $net.0/24 dev $nic src $own table $table
            ip rule add pref 9 oif $nic to $own lookup local
            ip rule add pref 11 oif $nic lookup $table
            ip rule add pref 20 iif lo from $own to $own lookup local
            ip rule add pref 21 iif lo from $own to $net.0/24 lookup $table
            rdma link add rxe_$nic type rxe netdev $nic
        done
    }"#;
