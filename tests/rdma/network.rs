//! In-network reduction among ranks that reach each other by RDMA.

use ringfold_harness::{IN_NETWORK, program};

use crate::lab;

/// Four ranks on two hosts hand over chunks to an aggregator by RDMA, and then combine all
/// themselves, because it is killed before their first call. Every rank has the same bits in both
/// runs.
#[test]
#[ignore = "wants a virtual machine"]
fn aggregators_change_no_bits() {
    let [ringfold, ringrun, rank] = ["ringfold", "ringrun", "rank"].map(program::binary);
    let text = format!(
        r#"
        export HOME=/tmp RINGFOLD_TRANSPORT=rdma RINGFOLD_ALGO='{IN_NETWORK}'
        export RINGFOLD_DEBUG=WARN RINGFOLD_INNETWORK=require
        export RINGFOLD_AGGREGATORS=10.10.0.1:7411
        RINGFOLD_IB_HCA=rxe_h0 {ringfold} aggregate --listen $RINGFOLD_AGGREGATORS \
            > /tmp/server & server=$!
        until grep -q 'aggregator at' /tmp/server; do kill -0 $server; sleep 0.1; done
        grep 'chunks by rdma' /tmp/server
        bits() {{
            timeout 250 {ringrun} -n 4 sh -c "export RINGFOLD_HOSTID=h\$((RINGFOLD_RANK / 2))
                export RINGFOLD_IB_HCA=rxe_\$RINGFOLD_HOSTID; exec {rank} bits 1 $1"
        }}
        bits 0
        echo ==
        bits 15 > /tmp/log & job=$!
        until grep -q started /tmp/log; do kill -0 $job; sleep 0.1; done
        {ringfold} aggregate --listen $RINGFOLD_AGGREGATORS --stats | awk '{{ print "linked", $5 }}'
        kill -9 $server
        wait $job
        cat /tmp/log"#,
        ringfold = ringfold.display(),
        ringrun = ringrun.display(),
        rank = rank.display()
    );
    let Some(outcome) = lab::script(&text) else { return };
    let runs: Vec<Vec<&str>> = outcome
        .stdout
        .split("==\n")
        .map(|run| {
            let mut lines: Vec<_> = run.lines().filter(|line| line.starts_with("bits ")).collect();
            lines.sort_unstable();
            lines
        })
        .collect();
    assert!(runs.len() == 2 && runs[0].len() == 4, "{outcome:?}");
    assert_eq!(runs[0], runs[1], "{outcome:?}");
    // One member for each host.
    assert!(outcome.stdout.contains("linked 2\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("is given up"), "{outcome:?}");
}
