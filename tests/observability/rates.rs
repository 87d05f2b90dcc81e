//! TCP connections of which one is slow.

use std::fs::File;

use ringfold_harness::{Folder, Job, Namespaces, Outcome, Ranks, program};

use crate::LONG;

/// Lets two hosts with two cables all-reduce 4 MiB for some seconds. The first host sends at so
/// many Mbit/s by each cable. Returns what its rank and the other one have logged.
fn logs(network: &str, rates: [u32; 2]) -> Option<[String; 2]> {
    let hosts = Namespaces::new(&["h0", "h1"])?;
    for (cable, rate) in rates.into_iter().enumerate() {
        let interface = format!("eth{cable}");
        hosts.cable(["h0", &interface], ["h1", &interface]);
        for host in 0..2 {
            let name = format!("h{host}");
            let address = format!("{network}{cable}.{}/24", host + 1);
            hosts.ip(&format!("-n @{name} addr add {address} dev {interface}"));
            hosts.wait_for_carrier(&name, &interface);
        }
        let limit = format!("root tbf rate {rate}mbit burst 32kb latency 30ms");
        if !hosts.can(&format!("tc -n @h0 qdisc add dev {interface} {limit}")) {
            return None;
        }
    }
    let folder = Folder::new();
    let stop = folder.at("stop");
    let start = |rank: usize| {
        let mut command = hosts.command(&format!("h{rank}"), program::own("rank"));
        command.args(["counted", "1048576", "40", &stop]);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", format!("{network}0.1")).env("MASTER_PORT", "29519");
        command.env("RINGFOLD_SECRET", ringfold_harness::secret());
        command.env("RINGFOLD_TRANSPORT", "tcp").env("RINGFOLD_SOCKET_IFNAME", "=eth0,eth1");
        Job::start(command.env("RINGFOLD_DEBUG", "INFO"))
    };
    let ranks = Ranks((0..2).map(start).collect());
    ranks.wait_for("counted");
    File::create(&stop).unwrap();
    let ended = |outcome: Outcome| {
        assert!(outcome.status.success(), "{outcome:?}");
        outcome.stderr
    };
    let logs: Vec<String> = ranks.finish(LONG).into_iter().map(ended).collect();
    Some(logs.try_into().unwrap())
}

#[test]
fn a_connection_that_is_slower_than_its_siblings_is_named_once() {
    let Some(logs) = logs("10.77.8", [400, 100]) else { return };
    let [named, back] = logs
        .each_ref()
        .map(|log| log.lines().filter(|line| line.contains("% of the rate")).collect::<Vec<_>>());
    println!("{named:?} {back:?}");
    // The way back waits for acknowledgements, which wait behind data.
    assert!(back.len() <= 1, "{}", logs[1]);
    let [named] = named[..] else { panic!("{}", logs[0]) };
    let who =
        " WARN ringfold_transport::tcp::endpoint::slow: tcp: lane 1 to rank 1 from 10.77.81.1";
    assert!(named.contains(who) && named.contains("on rail 1 is logged at INFO"), "{named}");
}

#[test]
fn connections_of_equal_rates_are_not_named() {
    let Some(logs) = logs("10.77.9", [100, 100]) else { return };
    assert!(logs.iter().all(|log| !log.contains("% of the rate")), "{logs:?}");
}
