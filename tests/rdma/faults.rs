//! Faults of rails, devices and processes in the middle of calls.

use ringfold_harness::program;

use crate::lab::{JOIN, RAILS, script};

/// As [`functions_of`], for four ranks, two on each host.
pub(crate) fn functions(settings: &str) -> String {
    functions_of(4, "RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2))", settings)
}

/// Defines shell functions for a job of ranks with `own` settings. The ranks all-reduce with
/// checked sums until `/tmp/stop` exists. `start` waits for the first calls, `calls` for more
/// calls, `said` for a number of log lines, and `finish` for a successful end. Broadcasts use
/// chains, whose long messages RDMA writes directly into the receivers' buffers.
fn functions_of(ranks: usize, own: &str, settings: &str) -> String {
    let [ringrun, rank] = ["ringrun", "rank"].map(program::binary);
    format!(
        r#"export HOME=/tmp RINGFOLD_DEBUG=INFO RINGFOLD_ALGO=broadcast:chain {settings}
        export RINGFOLD_IB_TIMEOUT=14 RINGFOLD_IB_RETRY_CNT=3
        trap 'cat /tmp/log' EXIT
        begin() {{
            rm -f /tmp/stop
            rank='export {own}; exec {} checked 262144 /tmp/stop'
            timeout 150 {} -n {ranks} sh -c "$rank" > /tmp/log 2>&1 & job=$!
        }}
        count() {{ grep -c "$1" /tmp/log || true; }}
        said() {{ until [ $(count "$1") -ge $2 ]; do kill -0 $job; sleep 0.05; done; }}
        calls() {{ said '^.*call ' $(($(count '^.*call ') + $1)); }}
        start() {{ begin; calls 3; }}
        finish() {{ touch /tmp/stop; wait $job; [ $(count wrong) = 0 ]; }}
        down() {{ for port; do ip link set $port down; done; }}
        up() {{
            for port; do
                ip link set $port up
                rule=$(ip rule | sed -n "s/.* oif $port lookup //p" | tail -n 1)
                host=${{port#?}}; rail=${{host#*r}}; host=${{host%r*}}
                [ -z "$rule" ] || ip route replace 10.1$rail.0.0/24 dev $port \
                    src 10.1$rail.0.$((host + 1)) table $rule
            done
        }}
        flow() {{ cat /sys/class/net/$1/statistics/tx_bytes; }}
        carries() {{
            before=$(flow $1)
            until [ $(($(flow $1) - before)) -gt 1000000 ]; do kill -0 $job; sleep 0.05; done
        }}"#,
        rank.display(),
        ringrun.display()
    )
}

/// One rail loses its NIC, then its cable. The other rail goes on, and the lost one carries bytes
/// again afterwards.
#[test]
#[ignore = "wants a virtual machine"]
fn a_rail_that_comes_back_is_used_again() {
    let text = "
        start
        for port in p1r1 h0r1; do
            carries p1r1
            down $port; calls 3; up $port
            carries p1r1
        done
        finish";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.stdout.contains("by rxe_h0r1:1 is lost, 1 left"), "{outcome:?}");
    let costs = outcome.stdout.lines().filter(|line| line.contains(" of callers to send "));
    for none in [" 0 of callers to send ", " 0 to receive "] {
        let is_none = |line: &str| line.contains(none);
        assert!(!costs.clone().all(is_none), "no device reached a caller's memory: {outcome:?}");
    }
}

/// A switch drops all packets while every port stays up. The devices' retries detect the failure,
/// and periodic attempts detect the recovery.
#[test]
#[ignore = "wants a virtual machine"]
fn a_rail_that_fails_in_silence_comes_back_too() {
    let text = "
        start
        carries p1r1
        ip link set p1r1 nomaster; calls 3; ip link set p1r1 master rail1
        carries p1r1
        finish";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.stdout.contains("retries exhausted: rank "), "{outcome:?}");
}

/// Defines `shorten PORT`, after which a switch's port loses all RoCE packets of more than 1,100
/// bytes, and `restore PORT`.
const SHORTEN: &str = r#"
    shorten() {
        tc qdisc add dev $1 clsact
        is_long='cmp(u16 at 22 layer network eq 4791) and cmp(u16 at 2 layer network gt 1100)'
        for way in ingress egress; do
            tc filter add dev $1 $way protocol ip basic match "$is_long" action drop
        done
    }
    restore() { tc qdisc del dev $1 clsact; }"#;

/// Returns the seconds of each call.
fn seconds(stdout: &str) -> impl Iterator<Item = f64> {
    let calls = stdout.split("call ").skip(1).filter_map(|call| call.split_whitespace().nth(1));
    calls.filter_map(|micros| micros.parse::<f64>().ok()).map(|micros| micros / 1e6)
}

/// Returns the seconds of all calls beyond one second for each.
fn stalls(stdout: &str) -> f64 {
    seconds(stdout).map(|seconds| (seconds - 1.0).max(0.0)).sum()
}

/// A rail loses long packets only, for half a minute. `left` waits until its paths are lost. The
/// devices try for 7.5 s before they give up, which stalls a call. Nothing else does.
fn long_packets_are_lost(port: &str, own: &str, settings: &str, left: &str) {
    let text = format!(
        "{SHORTEN}
        unset RINGFOLD_IB_TIMEOUT RINGFOLD_IB_RETRY_CNT
        start
        carries {port}
        shorten {port}; {left}; sleep 30; calls 3; restore {port}
        carries {port}
        finish"
    );
    let Some(outcome) = script(&format!("{}{text}", functions_of(4, own, settings))) else {
        return;
    };
    let stalls = stalls(&outcome.stdout);
    assert!(stalls <= 15.0, "{stalls} s: {outcome:?}");
    let why = "packets of 4096 bytes do not pass between rxe_h";
    assert!(outcome.stdout.contains(why), "{outcome:?}");
}

#[test]
#[ignore = "wants a virtual machine"]
fn a_rail_that_loses_long_packets_is_left_to_the_other() {
    let own = "RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2))";
    long_packets_are_lost("p1r1", own, "RINGFOLD_TRANSPORT=rdma", "said 'is lost, 1 left' 2");
}

#[test]
#[ignore = "wants a virtual machine"]
fn the_only_rail_that_loses_long_packets_is_left_to_tcp() {
    let own = "RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2))r0";
    let left = "said 'is left; using tcp' 2";
    long_packets_are_lost("p1r0", own, "RINGFOLD_TRANSPORT=rdma,tcp", left);
}

/// A switch forwards only a sixteenth of the packets' rate on one rail. The rail is named and gets
/// a share by its rate, and no call takes twice as long as a device retries.
#[test]
#[ignore = "wants a virtual machine"]
fn a_rail_of_a_sixteenth_of_its_rate_stalls_no_call() {
    let text = "
        unset RINGFOLD_IB_TIMEOUT RINGFOLD_IB_RETRY_CNT
        start
        carries p1r1
        before=$(flow p1r1); sleep 5; rate=$((($(flow p1r1) - before) * 8 / 5 / 16))
        echo rate $rate
        tc qdisc add dev p1r1 root tbf rate ${rate}bit burst 32kb limit 64mb
        said ' % of its share' 1; calls 10
        tc qdisc del dev p1r1 root
        carries p1r1
        finish";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    let longest = seconds(&outcome.stdout).fold(0.0, f64::max);
    assert!((0.0..15.0).contains(&longest), "{longest} s: {outcome:?}");
    assert!(!outcome.stdout.contains("is lost"), "{outcome:?}");
}

/// Both rails fail, one by a NIC and one by a cable, and come back.
pub(crate) fn no_rail_is_left() -> String {
    let text = "
        start
        down h0r0 p1r1; said 'is left; using tcp' 4; calls 5; up h0r0 p1r1
        said 'again, by rxe_h' 4
        carries p1r0; carries p1r1
        finish";
    format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma,tcp"))
}

#[test]
#[ignore = "wants a virtual machine"]
fn where_no_rail_is_left_tcp_carries_on() {
    let Some(outcome) = script(&no_rail_is_left()) else { return };
    assert!(outcome.status.success());
}

#[test]
#[ignore = "wants a virtual machine"]
fn where_tcp_is_not_allowed_the_last_rail_is_the_end() {
    let text = "
        start
        down h0r0 p1r1
        if wait $job; then exit 1; fi";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    let why = "RINGFOLD_TRANSPORT leaves no other way";
    let failed = outcome.stdout.lines().filter(|line| line.starts_with("failed ")).count();
    assert!(failed == 4 && outcome.stdout.contains(why), "{outcome:?}");
}

/// The only rail loses its cable for a moment. The devices' retries outlast the outage.
#[test]
#[ignore = "wants a virtual machine"]
fn a_flap_of_the_only_rail_is_waited_for() {
    let text = "
        unset RINGFOLD_IB_TIMEOUT RINGFOLD_IB_RETRY_CNT
        start
        for port in p0r0 p1r0; do
            down $port; sleep 0.3; up $port
            calls 3
        done
        said 'without another way its device retries' 2
        finish";
    let own = "RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2))r0";
    let functions = functions_of(4, own, "RINGFOLD_TRANSPORT=rdma");
    let Some(outcome) = script(&format!("{functions}{text}")) else { return };
    assert!(!outcome.stdout.contains("is lost"), "{outcome:?}");
}

/// The rails fail before, during or just after the setup of links.
#[test]
#[ignore = "wants a virtual machine"]
fn rails_may_fail_while_links_are_made() {
    let text = "
        for pause in 0 2 4 6; do
            begin
            until grep -q 'by rdma' /tmp/log; do kill -0 $job; sleep 0.01; done
            sleep 0.0$pause
            down h0r0 p1r1
            calls 3
            up h0r0 p1r1
            finish
        done";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma,tcp"));
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.status.success());
}

/// The ports are up and the kernel has the peer's address, but no packet arrives.
#[test]
#[ignore = "wants a virtual machine"]
fn rails_that_drop_all_packets_are_not_used() {
    let text = "
        unset RINGFOLD_IB_TIMEOUT RINGFOLD_IB_RETRY_CNT
        for rail in 0 1; do
            for host in 0 1; do
                ip neigh replace 10.1$rail.0.$((2 - host)) dev h${host}r$rail nud permanent \
                    lladdr $(cat /sys/class/net/h$((1 - host))r$rail/address)
            done
            ip link set p1r$rail nomaster
        done
        start
        finish";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma,tcp"));
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.stdout.contains("no packet came through in 6294 ms"), "{outcome:?}");
    assert!(outcome.stdout.matches("is left; using tcp").count() >= 4, "{outcome:?}");
}

/// Devices acknowledge packets for a stopped process. The peers wait for it, and no path is lost.
#[test]
#[ignore = "wants a virtual machine"]
fn a_stopped_rank_goes_on_where_it_was() {
    let text = "
        start
        rank=$(pgrep -x rank | tail -n 1)
        kill -STOP $rank; sleep 3; kill -CONT $rank
        calls 3
        finish";
    let text = format!("{}{text}", functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    assert!(!outcome.stdout.contains("is lost"), "{outcome:?}");
}

/// One of four hosts loses a cable. It keeps its other rail, and all other hosts keep both. In the
/// ring, host 0 receives from that host, so it gets no bytes over the lost rail.
#[test]
#[ignore = "wants a virtual machine"]
fn four_hosts_lose_a_rail_of_one_and_get_it_back() {
    let text = "
        join 2; join 3; sleep 0.5
        start
        for host in 0 1 2 3; do carries p${host}r0; carries p${host}r1; done
        down p3r1; said 'by rxe_h.r1:1 is lost, 1 left' 2; calls 3
        for port in p1r1 p2r1 p3r0 p0r0; do carries $port; done
        up p3r1
        carries p3r1
        finish";
    let own = "RINGFOLD_IB_HCA=rxe_h$RINGFOLD_RANK RINGFOLD_HOSTID=$RINGFOLD_RANK";
    let settings = "RINGFOLD_TRANSPORT=rdma RINGFOLD_ALGO='allreduce:ring;broadcast:chain'";
    let functions = functions_of(4, own, settings);
    let Some(outcome) = script(&format!("{JOIN}\n{functions}{text}")) else { return };
    let lost = outcome.stdout.lines().filter(|line| line.contains(" is lost, 1 left"));
    for line in lost {
        // Both ends log the loss, each with its own device.
        let is_of_three = line.contains("to rank 3 by") || line.contains("by rxe_h3r1:1");
        assert!(is_of_three, "{line}: {outcome:?}");
    }
}

/// Three hosts may use one device each, on the second rail. The first rail stays idle, and TCP
/// takes over while the second one is down.
#[test]
#[ignore = "wants a virtual machine"]
fn hosts_with_one_rail_use_no_other() {
    let text = "
        join 2; sleep 0.5
        idle=$(flow p0r0)
        start
        for host in 0 1 2; do carries p${host}r1; done
        down p1r1; said 'is left; using tcp' 2; calls 3; up p1r1
        carries p1r1
        finish
        [ $(($(flow p0r0) - idle)) -lt 100000 ]";
    let own = "RINGFOLD_IB_HCA=rxe_h${RINGFOLD_RANK}r1 RINGFOLD_HOSTID=$RINGFOLD_RANK";
    let functions = functions_of(3, own, "RINGFOLD_TRANSPORT=rdma,tcp");
    let Some(outcome) = script(&format!("{JOIN}\n{functions}{text}")) else { return };
    assert!(!outcome.stdout.contains(&format!("rdma rail {}", RAILS - 1)), "{outcome:?}");
}
