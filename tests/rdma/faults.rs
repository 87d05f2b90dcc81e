//! What rails, devices and processes do to a job in the middle of its calls.

use ringfold_tests::program;

use crate::lab::script;

/// Starts four ranks, two for either host, that all-reduce with checked sums until `/tmp/stop` is
/// there. `start` waits for their first calls, `calls` for so many more, `said` for a line of the
/// log, so many times, and `finish` for a good end. Broadcasts are by chains, whose messages are so
/// long that they are written where they are wanted.
pub(crate) fn functions(settings: &str) -> String {
    let [ringrun, rank] = ["ringrun", "rank"].map(program::binary);
    let own = r"export RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2)); exec";
    format!(
        r#"export HOME=/tmp RINGFOLD_DEBUG=INFO RINGFOLD_ALGO=broadcast:chain {settings}
        export RINGFOLD_IB_TIMEOUT=14 RINGFOLD_IB_RETRY_CNT=3
        trap 'cat /tmp/log' EXIT
        begin() {{
            rm -f /tmp/stop
            timeout 150 {} -n 4 sh -c '{own} {} checked 262144 /tmp/stop' > /tmp/log 2>&1 & job=$!
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
        ringrun.display(),
        rank.display()
    )
}

/// NIC and cable, of one rail: it takes only itself away, and carries bytes again afterwards.
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

/// No port says anything, as where a switch has lost its way: the devices' retries say it, and
/// attempts from time to time find out that all is well again.
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

/// Whenever that is: before there is a link, in the middle of making it, or just after.
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

/// The ports are up and the kernel knows where the peer is, but nothing arrives.
#[test]
#[ignore = "wants a virtual machine"]
fn rails_by_which_nothing_passes_are_not_used() {
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
    assert!(outcome.stdout.contains("no packet came through in 2000 ms"), "{outcome:?}");
    assert!(outcome.stdout.matches("is left; using tcp").count() >= 4, "{outcome:?}");
}

/// Devices answer for a process that is stopped: it is waited for, and nothing is lost.
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
