//! `ringfold doctor` as a job: its findings between hosts.

use ringfold_harness::{program, secret};

use crate::lab::{JOIN, RAILS, script};

/// Defines `doctor`: four ranks, two on each host, with that host's devices.
fn doctor() -> String {
    let [ringrun, ringfold] = ["ringrun", "ringfold"].map(program::binary);
    let own = r"export RINGFOLD_IB_HCA=rxe_h$((RINGFOLD_RANK / 2)); exec";
    format!(
        "export HOME=/tmp RINGFOLD_TRANSPORT=rdma
         doctor() {{ timeout 100 {} -n 4 sh -c '{own} {} doctor'; }}",
        ringrun.display(),
        ringfold.display()
    )
}

/// Returns the rails in the table of pairs, and whether each works.
fn rails(text: &str) -> Vec<(usize, bool)> {
    let rail = |line: &str| {
        let (rail, rest) = (0..RAILS).find_map(|rail| {
            let pair = format!("rxe_h0r{rail}:1 - rxe_h1r{rail}:1  ");
            Some((rail, line.trim_start().strip_prefix(&pair)?))
        })?;
        Some((rail, rest.contains(" us ") && rest.matches(" GB/s").count() == 2))
    };
    text.lines().filter_map(rail).collect()
}

#[test]
#[ignore = "wants a virtual machine"]
fn the_doctor_tries_every_rail_between_hosts() {
    let Some(outcome) = script(&format!("{}\ndoctor", doctor())) else { return };
    assert_eq!(rails(&outcome.stdout), [(0, true), (1, true)], "{outcome:?}");
    assert_eq!(outcome.stdout.matches(" #0  2  ").count(), 1, "{outcome:?}");
    assert_eq!(outcome.stdout.matches("tcp ").count(), 1, "{outcome:?}");
    assert!(
        outcome.stdout.ends_with("ok    2 rails between 1 pair of hosts, in 1 round\n"),
        "{outcome:?}"
    );
}

/// Every two hosts are paired, each host with one other at a time. A broken rail of one host is
/// reported for each of its pairs.
#[test]
#[ignore = "wants a virtual machine"]
fn the_doctor_tries_every_pair_of_hosts() {
    const HOSTS: usize = 4;
    let [ringrun, ringfold] = ["ringrun", "ringfold"].map(program::binary);
    let text = format!(
        "{JOIN}
        export HOME=/tmp RINGFOLD_TRANSPORT=rdma
        rank='export RINGFOLD_IB_HCA=rxe_h$RINGFOLD_RANK; exec {} doctor'
        doctor() {{ timeout 100 {} -n {HOSTS} sh -c \"$rank\"; }}
        join 2; join 3; sleep 0.5
        doctor
        ip link set p3r1 nomaster
        echo ==; if doctor; then exit 1; fi",
        ringfold.display(),
        ringrun.display()
    );
    let Some(outcome) = script(&text) else { return };
    let (sound, broken) = outcome.stdout.split_once("==\n").unwrap();
    let works = |line: &str| line.contains(" us ") && line.matches(" GB/s").count() == 2;
    for (high, rail) in (0..HOSTS).flat_map(|high| (0..RAILS).map(move |rail| (high, rail))) {
        for low in 0..high {
            let pair = format!("rxe_h{low}r{rail}:1 - rxe_h{high}r{rail}:1  ");
            let [of_sound, of_broken] = [sound, broken].map(|text| {
                let lines: Vec<_> = text.lines().filter(|line| line.contains(&pair)).collect();
                assert_eq!(lines.len(), 1, "{pair}: {text}");
                lines[0]
            });
            assert!(works(of_sound), "{pair}: {sound}");
            assert_eq!(works(of_broken), (high, rail) != (3, 1), "{pair}: {broken}");
        }
    }
    assert!(sound.ends_with("ok    12 rails between 6 pairs of hosts, in 3 rounds\n"), "{sound}");
    assert!(broken.ends_with("BAD   3 things are broken\n"), "{broken}");
}

/// Every fault has a line, and the other rail still works.
#[test]
#[ignore = "wants a virtual machine"]
fn the_doctor_reports_the_fault_of_a_rail() {
    let text = r"
        ip link set h1r1 mtu 1500; sleep 0.5
        doctor
        ip link set h1r1 mtu 4200
        ip link set p1r1 mtu 2500; sleep 0.5
        echo ==; if doctor; then exit 1; fi
        ip link set p1r1 mtu 4200
        ip link set p1r1 down; sleep 0.5
        echo ==; if doctor; then exit 1; fi
        ip link set p1r1 up
        ip addr flush dev h1r1; sleep 0.5
        echo ==; if doctor; then exit 1; fi";
    let Some(outcome) = script(&format!("{}\n{text}", doctor())) else { return };
    let texts: Vec<&str> = outcome.stdout.split("==\n").collect();
    let expected = [
        (vec![(0, true), (1, true)], "note ", "MTU 4096 on one side and 1024 on the other"),
        (vec![(0, true), (1, false)], "BAD ", "packets of 4096 bytes do not pass between"),
        (vec![(0, true)], "BAD ", "port: rxe_h1r1:1 is down; check its cable"),
        (vec![(0, true)], "BAD ", "rxe_h0r1:1 and rxe_h1r1:1 have no kind of address in common"),
    ];
    assert_eq!(texts.len(), expected.len(), "{outcome:?}");
    for (text, (found, mark, what)) in texts.iter().zip(expected) {
        assert_eq!(rails(text), found, "{text}");
        let lines: Vec<_> = text.lines().filter(|line| line.contains(what)).collect();
        assert!(lines.len() == 1 && lines[0].starts_with(mark), "{what}: {text}");
        let is_bad = text.ends_with("BAD   1 thing is broken\n");
        assert_eq!(is_bad, mark == "BAD ", "{text}");
    }
}

/// Two network namespaces act as hosts without devices.
#[test]
#[ignore = "wants a virtual machine"]
fn without_rdma_the_doctor_tries_tcp_between_hosts() {
    let text = format!(
        "
        ip netns add one; ip netns add two
        ip link add here netns one type veth peer name there netns two
        ip -n one addr add 10.99.0.1/24 dev here; ip -n one link set here up
        ip -n two addr add 10.99.0.2/24 dev there; ip -n two link set there up
        is_up() {{ for try in $(seq 100); do
            ! ip -n $1 link show $2 | grep -q 'state UP' || return 0; sleep 0.1
        done; }}
        is_up one here; is_up two there
        export RINGFOLD_TRANSPORT=shm,tcp RINGFOLD_SECRET={}
        export WORLD_SIZE=2 MASTER_ADDR=10.99.0.1 MASTER_PORT=12345
        RANK=1 timeout 100 ip netns exec two {doctor} doctor & other=$!
        RANK=0 timeout 100 ip netns exec one {doctor} doctor
        wait $other",
        secret(),
        doctor = program::binary("ringfold").display()
    );
    let Some(outcome) = script(&text) else { return };
    let line = outcome.stdout.lines().find(|line| line.contains("tcp here - there"));
    let line = line.unwrap_or_default();
    assert!(line.contains(" us ") && line.matches(" GB/s").count() == 2, "{outcome:?}");
    assert!(outcome.stdout.ends_with("ok    no RDMA here: tcp/shm will be used\n"), "{outcome:?}");
}
