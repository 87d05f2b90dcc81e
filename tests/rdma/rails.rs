//! Declared rails of four hosts, with a missing NIC and with an address that changes.

use std::collections::BTreeMap;

use ringfold_harness::program;

use crate::lab;

/// Runs of each kind; the times are medians.
const RUNS: usize = 3;

/// Defines `ranks`: a rank on each of four hosts, which declares its two rails.
fn four_hosts(args: &str) -> String {
    let [ringrun, perf] = ["ringrun", "allreduce-perf"].map(program::binary);
    format!(
        "{}
         export HOME=/tmp RINGFOLD_TRANSPORT=rdma RINGFOLD_DEBUG=INFO
         join 2; join 3
         ranks() {{ timeout 100 {} -n 4 sh -c '
             nic=rxe_h$RINGFOLD_RANK
             export RINGFOLD_HOSTID=$RINGFOLD_RANK
             export RINGFOLD_IB_HCA==${{nic}}r0:1:0:0,${{nic}}r1:1:1:0
             exec {} {args}'; }}",
        lab::JOIN,
        ringrun.display(),
        perf.display()
    )
}

/// Returns the microseconds of the calls in the output of `allreduce-perf`.
fn times(stdout: &str) -> Vec<f64> {
    let rows = stdout.lines().filter(|line| line.trim_start().starts_with("65536 "));
    rows.map(|row| row.split_whitespace().nth(5).unwrap().parse().unwrap()).collect()
}

/// Counts the queue pairs in a log by the rails of their two ends.
fn queue_pairs(log: &str) -> BTreeMap<(char, char), usize> {
    let mut found = BTreeMap::new();
    for line in log.lines() {
        let Some((before, after)) = line.split_once(", queue pair to ") else { continue };
        let [own, theirs] = [before, after].map(|part| {
            part.trim_end().strip_suffix(":1").and_then(|name| name.chars().last()).unwrap()
        });
        *found.entry((own, theirs)).or_insert(0) += 1;
    }
    found
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// No queue pair joins two rails, so the first call has no failed connection to wait for.
#[test]
#[ignore = "wants a virtual machine"]
fn a_nic_that_is_down_leaves_the_others_on_their_rails() {
    let text = format!(
        "{}
         for run in $(seq {RUNS}); do
             for state in up down; do
                 ip link set h2r1 $state
                 [ $state = up ] && ip route replace 10.11.0.0/24 dev h2r1 src 10.11.0.3 table 5021
                 echo == $state; echo == $state >&2
                 ranks
             done
         done",
        four_hosts("-b 64K -e 64K -n 1 -w 0 -c 1")
    );
    let Some(outcome) = lab::script(&text) else { return };
    let mut seen = Vec::new();
    for state in ["up", "down"] {
        let of_state = |text: &str| {
            let runs = text.split("== ").filter(|run| run.starts_with(state));
            runs.map(str::to_owned).collect::<Vec<_>>()
        };
        let calls = of_state(&outcome.stdout);
        assert!(
            calls.iter().all(|run| run.contains(": 0 OK")) && calls.len() == RUNS,
            "{outcome:?}"
        );
        let first = calls.iter().flat_map(|run| times(run)).collect::<Vec<_>>();
        let pairs =
            of_state(&outcome.stderr).iter().map(|log| queue_pairs(log)).collect::<Vec<_>>();
        seen.push((median(first), pairs));
    }
    let [(up, with), (down, without)] = &seen[..] else { unreachable!() };
    println!("first call: {up} us with all NICs, {down} us with one down, x {:.2}", down / up);
    println!("queue pairs by rails: {:?} with all NICs, {:?} with one down", with[0], without[0]);
    let is_straight =
        |pairs: &BTreeMap<(char, char), usize>| pairs.keys().all(|(own, theirs)| own == theirs);
    assert!(with.iter().chain(without).all(is_straight), "{seen:?}");
    assert!(with.iter().all(|pairs| pairs.contains_key(&('1', '1'))), "{seen:?}");
    assert!(without.iter().all(|pairs| pairs[&('0', '0')] > pairs[&('1', '1')]));
}

/// The address of a rail changes in the middle of a call. Only that path goes down and up again.
#[test]
#[ignore = "wants a virtual machine"]
fn an_address_that_changes_takes_only_its_path_down() {
    let text = r#"
        ranks > /tmp/log 2>&1 & job=$!
        until grep -q '(GB/s)' /tmp/log; do kill -0 $job; sleep 0.1; done
        new=10.11.0.101 net=10.11.0.0/24
        ip addr del 10.11.0.1/24 dev h0r1
        ip addr add $new/24 dev h0r1 noprefixroute
        ip route replace $net dev h0r1 src $new table 1001
        ip rule add pref 10 oif h0r1 to $new lookup local
        ip rule add pref 20 iif lo from $new to $new lookup local
        ip rule add pref 21 iif lo from $new to $net lookup 1001
        wait $job
        cat /tmp/log"#;
    let text = format!("{}\n{text}", four_hosts("-b 256K -e 256K -n 100 -w 1 -c 1"));
    let Some(outcome) = lab::script(&text) else { return };
    assert!(outcome.stdout.contains(": 0 OK"), "{outcome:?}");
    for part in ["the GID of rxe_h0r1:1 changed from 10.11.0.1 to 10.11.0.101", "r1:1 carries data"]
    {
        assert!(outcome.stdout.contains(part), "{part}: {outcome:?}");
    }
    let again = outcome.stdout.lines().filter(|line| line.contains("r1:1 carries data again"));
    assert!(again.count() >= 1, "{outcome:?}");
}
