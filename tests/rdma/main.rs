//! Tests with real verbs, on soft-RoCE devices of two to four hosts with one or two rails each, and
//! on soft-iWARP devices if the kernel has them. They boot virtual machines, so they are ignored by
//! default:
//!
//! ```text
//! tests/rdma-vm/run --install -- true
//! cargo test -p ringfold-tests --test rdma -- --ignored --test-threads 1
//! ```
//!
//! Without such a machine a test prints that it is skipped. `RINGFOLD_TEST_REQUIRE=rdma-vm` makes
//! that a failure. `RINGFOLD_TEST_RDMA` names another lab with such devices: a command that runs
//! another command there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

use ringfold_harness::{Folder, Outcome, program};

use crate::lab::{HOSTS, RAILS};

mod doctor;
mod faults;
mod iwarp;
mod lab;
mod network;
mod rails;

/// The lab returns the status and both streams, even while a process holds these, and no files.
#[test]
#[ignore = "wants a virtual machine"]
fn commands_run_there_and_leave_nothing_here() {
    let folder = Folder::new();
    let stray = folder.path().join("stray");
    let text = "echo out; echo err >&2; echo again >/dev/stdout; echo >\"$0\"; sleep 1000 & exit 3";
    let Some(outcome) = lab::run_in_guest(&["sh", "-c", text, stray.to_str().unwrap()]) else {
        return;
    };
    assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
    assert_eq!(outcome.stdout, "out\nagain\n", "{outcome:?}");
    // The guest may log a second boot attempt before.
    assert!(outcome.stderr.ends_with("err\n"), "{outcome:?}");
    assert!(!stray.exists(), "{} was written to this machine", stray.display());
}

#[test]
#[ignore = "wants a virtual machine"]
fn there_are_the_devices_that_were_asked_for() {
    let Some(outcome) = lab::script("ibv_devices | awk 'NR > 2 { print $1 }' | sort") else {
        return;
    };
    let hosts = (0..HOSTS).flat_map(|host| (0..RAILS).map(move |rail| (host, rail)));
    let expected: String = hosts.map(|(host, rail)| format!("rxe_h{host}r{rail}\n")).collect();
    assert_eq!(outcome.stdout, expected);
}

/// Every rail uses its own cable: the switch's port has counted the bytes of both directions.
#[test]
#[ignore = "wants a virtual machine"]
fn verbs_reach_the_other_host_by_the_cable() {
    const BYTES: u64 = 4096 * 100;
    let text = "
        for rail in 0 1; do
            carried() { cat /sys/class/net/p1r$rail/statistics/$1; }
            received=$(carried rx_bytes) sent=$(carried tx_bytes)
            timeout 60 ibv_rc_pingpong -e -c -n 100 -g 1 -d rxe_h0r$rail >&2 & server=$!
            tries=0
            until timeout 60 ibv_rc_pingpong -e -c -n 100 -g 1 -d rxe_h1r$rail 10.1$rail.0.1 >&2; do
                tries=$((tries + 1)); [ $tries -lt 50 ]; sleep 0.2
            done
            wait $server
            echo $rail $(($(carried rx_bytes) - received)) $(($(carried tx_bytes) - sent))
        done";
    let Some(outcome) = lab::script(text) else { return };
    let rails: Vec<Vec<u64>> = outcome
        .stdout
        .lines()
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    assert_eq!(rails.len(), RAILS, "{outcome:?}");
    for (rail, seen) in (0..).zip(&rails) {
        assert_eq!(seen[0], rail, "{outcome:?}");
        let all = BYTES..BYTES * 2;
        assert!(all.contains(&seen[1]) && all.contains(&seen[2]), "{outcome:?}");
    }
    assert_eq!(outcome.stderr.matches("100 iters in ").count(), 2 * RAILS, "{outcome:?}");
}

/// Programs that were built on this machine run in the lab, including their SIMD code.
#[test]
#[ignore = "wants a virtual machine"]
fn programs_built_here_run_there() {
    let perf = program::binary("allreduce-perf");
    let args = ["--ranks", "2", "-b", "8", "-e", "64K", "-f", "8", "-c", "1"];
    let command = [&[perf.to_str().unwrap()][..], &args].concat();
    let Some(outcome) = lab::run(&command) else { return };
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains("# Out of bounds values : 0 OK"), "{outcome:?}");
}

/// The conformance suite, over one queue pair for each pair of rails and over several.
#[test]
#[ignore = "wants a virtual machine"]
fn the_transport_conforms() {
    let suite = program::suite("conformance");
    let text = format!("RINGFOLD_TEST_REQUIRE=rdma {} --test-threads 1 rdma", suite.display());
    let Some(outcome) = lab::script(&text) else { return };
    let passed = |name: &str| outcome.stdout.matches(&format!("test {name}::")).count();
    assert!(passed("rdma") > 0 && passed("rdma") == passed("rdma_several"), "{outcome:?}");
}

/// Every collective, in ordinary buffers, the communicator's buffers and windows.
#[test]
#[ignore = "wants a virtual machine"]
fn collectives_are_right() {
    let Some(outcome) = lab::script(&over_rdma("collectives")) else { return };
    assert!(outcome.stdout.contains("test rdma::allreduce ... ok"), "{outcome:?}");
}

/// Ranks that are killed, stopped or late, or that make a different call.
#[test]
#[ignore = "wants a virtual machine"]
fn survivors_get_the_cause() {
    let Some(outcome) = lab::script(&over_rdma("faults")) else { return };
    println!("{}", failures(&outcome));
}

/// Returns the lines of the fault suite that tell how long the survivors took, and checks that none
/// is missing: two for killed parents, two for each of calls on a gibibyte and on a window, four
/// for messages of two sizes, four for receives from any rank, four for started calls, and two for
/// stopped ranks.
fn failures(outcome: &Outcome) -> String {
    let times: Vec<_> =
        outcome.stdout.lines().filter(|it| it.contains("all survivors fail")).collect();
    assert_eq!(times.len(), 20, "{outcome:?}");
    times.join("\n")
}

/// Returns the command for a suite's RDMA tests.
fn over_rdma(suite: &str) -> String {
    let suite = program::suite(suite);
    format!("RINGFOLD_TEST_REQUIRE=rdma {} --test-threads 1 --show-output rdma::", suite.display())
}

/// Defines `ranks`: four ranks, two on each host, which use that host's devices only.
fn ranks(args: &str) -> String {
    let [ringrun, perf] = ["ringrun", "allreduce-perf"].map(program::binary);
    let own = r"export RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2)); exec";
    format!(
        "export HOME=/tmp RINGFOLD_TRANSPORT=rdma
         ranks() {{ timeout 200 {} -n 4 sh -c '{own} {} {args}'; }}",
        ringrun.display(),
        perf.display()
    )
}

#[test]
#[ignore = "wants a virtual machine"]
fn sums_over_two_rails_are_right() {
    let args = "-b 8 -e 1M -f 16 -n 2 -w 1 -c 1";
    let text = format!("{}\nRINGFOLD_DEBUG=INFO ranks", ranks(args));
    let Some(outcome) = lab::script(&text) else { return };
    assert!(outcome.stdout.contains("# Out of bounds values : 0 OK"), "{outcome:?}");
    for rail in 0..RAILS {
        let path = format!("path {rail} to rank 2: rxe_h0r{rail}:1, queue pair");
        assert!(outcome.stderr.contains(&path), "{path}: {outcome:?}");
    }
}

/// Two rails with registered buffers, and one rail with buffers that each call registers or copies.
#[test]
#[ignore = "wants a virtual machine"]
fn four_hosts_agree_over_two_rails_or_one() {
    let perfs = [
        "allreduce-perf",
        "allgather-perf",
        "reduce-scatter-perf",
        "broadcast-perf",
        "reduce-perf",
        "alltoall-perf",
        "gather-perf",
        "scatter-perf",
        "scan-perf",
    ];
    let calls = perfs.map(|perf| {
        let [ringrun, perf] = ["ringrun", perf].map(program::binary);
        format!(
            "timeout 100 {} -n 4 sh -c \"export RINGFOLD_IB_HCA=rxe_h\\$RINGFOLD_RANK$rail
             exec {} -b 8 -e 512K -f 16 -n 1 -w 1 -c 1 $own\"",
            ringrun.display(),
            perf.display()
        )
    });
    let text = format!(
        "{}\nexport HOME=/tmp RINGFOLD_TRANSPORT=rdma; join 2; join 3
         calls() {{ {}; }}
         rail= own='-R 1'; calls
         rail=r0 own=; calls",
        lab::JOIN,
        calls.join("\n")
    );
    let Some(outcome) = lab::script(&text) else { return };
    let right = outcome.stdout.matches("# Out of bounds values : 0 OK").count();
    assert_eq!(right, 2 * perfs.len(), "{outcome:?}");
}

/// Every survivor gets the cause, and the kernel has no RDMA resources left.
#[test]
#[ignore = "wants a virtual machine"]
fn a_killed_rank_leaves_nothing_behind() {
    let text = r#"
        rdma resource > /tmp/before
        ranks > /tmp/log 2>&1 & job=$!
        until grep -q '(GB/s)' /tmp/log; do kill -0 $job; sleep 0.1; done
        kill -9 $(sed -n 's/^#  Rank  3 .*Pid *\([0-9]*\).*/\1/p' /tmp/log)
        wait $job || true
        cat /tmp/log
        rdma resource | diff /tmp/before - >&2"#;
    let text = format!("{}\n{text}", ranks("-b 64K -e 64K -n 1000000 -c 0"));
    let Some(outcome) = lab::script(&text) else { return };
    for rank in 0..3 {
        let cause = format!("on rank {rank}: the process of rank 3 is gone");
        assert!(outcome.stdout.contains(&cause), "{cause}: {outcome:?}");
    }
}

/// A rail loses its NIC or its cable in the middle of a call. The call goes on over the other rail,
/// with no byte lost or applied twice.
#[test]
#[ignore = "wants a virtual machine"]
fn a_rail_that_goes_down_takes_only_itself_away() {
    let text = r#"
        export RINGFOLD_DEBUG=WARN RINGFOLD_IB_TIMEOUT=14 RINGFOLD_IB_RETRY_CNT=3
        for port in p1r1 h0r1; do
            ranks > /tmp/log 2>&1 & job=$!
            until grep -q '(GB/s)' /tmp/log; do kill -0 $job; sleep 0.1; done
            ip link set $port down
            wait $job
            cat /tmp/log
            ip link set $port up
            ip route replace 10.11.0.0/24 dev h0r1 src 10.11.0.1 table 1001
            sleep 1
        done"#;
    let text = format!("{}\n{text}", ranks("-b 256K -e 256K -n 60 -w 1 -c 1"));
    let Some(outcome) = lab::script(&text) else { return };
    let right = outcome.stdout.matches("# Out of bounds values : 0 OK").count();
    assert_eq!(right, 2, "{outcome:?}");
    // Each rank warns once, for any cause and number of lost paths. The second path to a peer may
    // not exist yet; then the first one has no alternative.
    let warned: Vec<_> = outcome.stdout.lines().filter(|line| line.contains("WARN")).collect();
    let is_expected = |line: &&str| {
        line.contains("r1:1 is lost, 1 left: ")
            || line.contains("r1:1 went down; with it go ")
            || line.contains("r1:1 went down; on 1 paths without another way its device retries ")
    };
    assert!(warned.len() == 8 && warned.iter().all(is_expected), "{outcome:?}");
}

/// Ranks that run out of queue pairs or registered bytes connect to some peers with fewer of them,
/// and to the others by TCP. Without TCP, the error names the variable.
#[test]
#[ignore = "wants a virtual machine"]
fn the_resources_of_a_rank_are_bounded() {
    let text = r#"
        export RINGFOLD_DEBUG=INFO RINGFOLD_ALGO=allreduce:one_shot
        RINGFOLD_TRANSPORT=rdma,tcp RINGFOLD_IB_QPS_MAX=3 RINGFOLD_IB_QPS_PER_CONNECTION=4 ranks
        echo ==; echo == >&2
        RINGFOLD_TRANSPORT=rdma,tcp RINGFOLD_IB_BYTES_MAX=29M ranks
        echo ==; echo == >&2
        if RINGFOLD_IB_QPS_MAX=3 ranks; then exit 1; fi"#;
    let text = format!("{}\n{text}", ranks("-b 8 -e 256K -f 32 -n 2 -w 1 -c 1"));
    let Some(outcome) = lab::script(&text) else { return };
    let logs: Vec<&str> = outcome.stderr.split("==\n").collect();
    let right: Vec<_> = outcome.stdout.split("==\n").map(|it| it.contains(": 0 OK")).collect();
    assert_eq!(right, [true, true, false], "{outcome:?}");
    for (log, most, why) in [
        (logs[0], "queue pairs of 3, ", "RINGFOLD_IB_QPS_MAX=3 leaves no more in this process"),
        (
            logs[1],
            "bytes of 30408704; ",
            "RINGFOLD_IB_BYTES_MAX=30408704 leaves no more in this process",
        ),
    ] {
        assert!(log.contains(&format!("queue pairs on each: {why}")), "{log}");
        assert!(log.contains(&format!("using tcp ({why})")), "{log}");
        let ends: Vec<_> = log.lines().filter(|line| line.contains(most)).collect();
        assert_eq!(ends.len(), 4, "every rank logs its resources: {log}");
        assert!(ends.iter().any(|line| line.contains(" and 1 nothing")), "{log}");
    }
    // The failure report of the exhausted rank or of the refused one may arrive first.
    let ran_out = "RINGFOLD_IB_QPS_MAX=3 leaves no more";
    let refused = "its log says whether RINGFOLD_IB_QPS_MAX or RINGFOLD_IB_BYTES_MAX is too small";
    let cause = logs[2].lines().find(|line| line.contains("ringrun: the ranks agree: "));
    let cause = cause.unwrap_or_else(|| panic!("no cause: {}", logs[2]));
    assert!(cause.contains(ran_out) || cause.contains(refused), "{}", logs[2]);
    assert!(cause.contains("RINGFOLD_TRANSPORT leaves no other way"), "{}", logs[2]);
    assert!(logs[2].contains(ran_out), "{}", logs[2]);
}
