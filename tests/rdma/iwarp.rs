//! The same jobs over iWARP: soft-iWARP devices replace the soft-RoCE ones.

use ringfold_harness::{Outcome, needed, program};

use crate::lab;
use crate::{failures, faults, over_rdma, ranks};

/// Runs a script with an iWARP device on every rail, such as `siw_h0r0`. Returns `None` without
/// iWARP.
fn script(text: &str) -> Option<Outcome> {
    let devices = "
        for device in /sys/class/infiniband/*; do rdma link del ${device##*/}; done
        for name in h0r0 h0r1 h1r0 h1r1; do
            rdma link add siw_$name type siw netdev $name >&2 || { echo none; exit 0; }
        done";
    let outcome = lab::script(&format!("{devices}\n{}", text.replace("rxe_h", "siw_h")))?;
    if outcome.stdout == "none\n" {
        let _ = needed::skipped("siw", "that kernel has none");
        return None;
    }
    Some(outcome)
}

#[test]
#[ignore = "wants a virtual machine"]
fn the_transport_conforms_over_iwarp() {
    let suite = program::suite("conformance");
    let text = format!("RINGFOLD_TEST_REQUIRE=rdma {} --test-threads 1 rdma", suite.display());
    let Some(outcome) = script(&text) else { return };
    let passed = |name: &str| outcome.stdout.matches(&format!("test {name}::")).count();
    assert!(passed("rdma") > 0 && passed("rdma") == passed("rdma_several"), "{outcome:?}");
}

#[test]
#[ignore = "wants a virtual machine"]
fn collectives_over_iwarp_are_right() {
    let Some(outcome) = script(&over_rdma("collectives")) else { return };
    assert!(outcome.stdout.contains("test rdma::allreduce ... ok"), "{outcome:?}");
}

#[test]
#[ignore = "wants a virtual machine"]
fn survivors_get_the_cause_over_iwarp() {
    let Some(outcome) = script(&over_rdma("faults")) else { return };
    println!("{}", failures(&outcome));
}

#[test]
#[ignore = "wants a virtual machine"]
fn sums_over_iwarp_are_right() {
    let text = format!(
        "{}
        RINGFOLD_DEBUG=INFO ranks
        export RINGFOLD_IB_HCA=siw_h0
        timeout 100 {} doctor",
        ranks("-b 8 -e 1M -f 16 -n 2 -w 1 -c 1"),
        program::binary("ringfold").display()
    );
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.stdout.contains("# Out of bounds values : 0 OK"), "{outcome:?}");
    for rail in 0..lab::RAILS {
        let lines = [
            "rank 0: rank 2 by rdma".to_owned(),
            format!("rdma rail {rail}: siw_h0r{rail}:1, iWARP, "),
            format!("path {rail} to rank 2: siw_h0r{rail}:1, waits to be connected"),
            format!("path {rail} to rank 0: siw_h1r{rail}:1, connects to port "),
            format!("path {rail} to rank 2 by siw_h0r{rail}:1 carries data"),
        ];
        for line in lines {
            assert!(outcome.stderr.contains(&line), "{line}: {outcome:?}");
        }
        let found = format!("ok    address    siw_h0r{rail}:1: 10.1{rail}.0.1: ");
        let probed = format!("ok    probe      siw_h0r{rail}:1 to itself: ");
        for line in [found, probed] {
            assert!(outcome.stdout.contains(&line), "{line}: {outcome:?}");
        }
    }
    assert!(!outcome.stderr.contains("is lost"), "ranks leave without a failure: {outcome:?}");
}

/// RoCE and iWARP do not interoperate: ranks use RDMA among hosts of one kind, and TCP between.
#[test]
#[ignore = "wants a virtual machine"]
fn hosts_of_roce_and_of_iwarp_use_tcp() {
    let text = "
        rdma link del siw_h0r0; rdma link del siw_h0r1
        rdma link add roce_h0r0 type rxe netdev h0r0
        rdma link add roce_h0r1 type rxe netdev h0r1
        export RINGFOLD_DEBUG=INFO
        RINGFOLD_TRANSPORT=rdma,tcp ranks";
    let devices = "$( [ $RINGFOLD_RANK -lt 2 ] && echo roce_h0 || echo siw_h1 )";
    let ranks = ranks("-b 8 -e 64K -f 32 -n 2 -w 1 -c 1");
    let ranks = ranks.replace("rxe_h$((RINGFOLD_RANK / 2))", devices);
    assert!(ranks.contains(devices), "{ranks}");
    let Some(outcome) = script(&format!("{ranks}{text}")) else { return };
    assert!(outcome.stdout.contains("# Out of bounds values : 0 OK"), "{outcome:?}");
    for line in [
        "rank 0: rank 1 by rdma",
        "rank 0: rank 2 by tcp",
        "rank 3: rank 2 by rdma",
        "rank 3: rank 1 by tcp",
        "rdma rail 0: roce_h0r0:1, RoCE, ",
        "rdma rail 0: siw_h1r0:1, iWARP, ",
    ] {
        assert!(outcome.stderr.contains(line), "{line}: {outcome:?}");
    }
}

/// Without librdmacm, ranks use TCP if it is allowed, and fail otherwise. The log has the reason.
#[test]
#[ignore = "wants a virtual machine"]
fn without_librdmacm_iwarp_is_left_to_tcp() {
    let text = format!(
        "{}
        for library in $(ldconfig -p | sed -n 's/.*librdmacm.so.1 .*=> //p'); do
            mount --bind /dev/null $library
        done
        export RINGFOLD_DEBUG=INFO
        RINGFOLD_TRANSPORT=rdma,tcp ranks
        if ranks; then exit 1; fi",
        ranks("-b 8 -e 64K -f 32 -n 2 -w 1 -c 1")
    );
    let Some(outcome) = script(&text) else { return };
    assert_eq!(outcome.stdout.matches("# Out of bounds values : 0 OK").count(), 1, "{outcome:?}");
    let why = "no rdma because siw_h0r0:1 is iWARP, and takes no connections: librdmacm.so.1 \
               cannot be loaded";
    for line in [why, "install librdmacm1", "rank 2 by tcp", "RINGFOLD_TRANSPORT allows nothing"] {
        assert!(outcome.stderr.contains(line), "{line}: {outcome:?}");
    }
}

/// One rail loses its NIC, then its cable. No device reports the loss of the cable.
#[test]
#[ignore = "wants a virtual machine"]
fn an_iwarp_rail_that_comes_back_is_used_again() {
    let text = "
        start
        for port in p1r1 h0r1; do
            carries p1r1
            down $port; calls 3; said 'by rxe_h.r1:1 is lost, 1 left' 4; up $port
            carries p1r1
        done
        finish";
    let text = format!("{}{text}", faults::functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.stdout.contains("retries exhausted: rank "), "{outcome:?}");
}

#[test]
#[ignore = "wants a virtual machine"]
fn where_no_iwarp_rail_is_left_tcp_carries_on() {
    let Some(outcome) = script(&faults::no_rail_is_left()) else { return };
    assert!(outcome.status.success());
}

/// The kernel keeps trying to connect to a peer whose address it has. Calls do not wait for it.
#[test]
#[ignore = "wants a virtual machine"]
fn calls_do_not_wait_for_connections() {
    let text = "
        for rail in 0 1; do
            for host in 0 1; do
                ip neigh replace 10.1$rail.0.$((2 - host)) dev h${host}r$rail nud permanent \
                    lladdr $(cat /sys/class/net/h$((1 - host))r$rail/address)
            done
            ip link set p1r$rail nomaster
        done
        start
        said 'is left; using tcp' 4
        finish";
    let text = format!("{}{text}", faults::functions("RINGFOLD_TRANSPORT=rdma,tcp"));
    let Some(outcome) = script(&text) else { return };
    assert!(outcome.stdout.contains("no connection in 5000 ms: "), "{outcome:?}");
}

/// Devices acknowledge packets for a stopped process, and an unauthenticated peer is refused. No
/// path is lost.
#[test]
#[ignore = "wants a virtual machine"]
fn stopped_ranks_and_unauthenticated_peers_do_no_harm() {
    let text = "
        start
        rank=$(pgrep -x rank | tail -n 1)
        kill -STOP $rank; sleep 3; kill -CONT $rank
        calls 3
        port=$(sed -n 's/.*to rank 0: rxe_h1r0:1, connects to port //p' /tmp/log | head -n 1)
        if timeout 20 rping -c -C 1 -I 10.10.0.2 -a 10.10.0.1 -p $port >&2; then exit 1; fi
        said 'refused an unexpected connection' 1
        calls 3
        finish";
    let text = format!("{}{text}", faults::functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    assert!(!outcome.stdout.contains("is lost"), "{outcome:?}");
}

/// Every survivor gets the cause, and the kernel has no RDMA resources left.
#[test]
#[ignore = "wants a virtual machine"]
fn a_killed_rank_leaves_nothing_of_iwarp_behind() {
    let text = "
        rdma resource > /tmp/before
        start
        kill -9 $(pgrep -x rank | tail -n 1)
        wait $job || true
        rdma resource | diff /tmp/before - >&2";
    let text = format!("{}{text}", faults::functions("RINGFOLD_TRANSPORT=rdma"));
    let Some(outcome) = script(&text) else { return };
    let causes = outcome.stdout.lines().filter(|line| line.starts_with("cause ")).count();
    assert_eq!(causes, 3, "{outcome:?}");
}
