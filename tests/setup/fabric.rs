//! Ranks with evidence of the fabric between them agree on it before they connect.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use ringfold_harness::{Folder, Outcome};

use crate::by_hand;

/// Runs four ranks with four host ids and logs. By Slurm's variables, two are on each leaf switch.
fn four(settings: impl Fn(usize, &mut Command)) -> Vec<Outcome> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    by_hand(4, |rank, command| {
        command.args(["again", "1"]).env("RINGFOLD_DEBUG", "INFO");
        command.env("RINGFOLD_HOSTID", format!("h{rank}"));
        command.env("SLURM_TOPOLOGY_ADDR", format!("s0.s{}.{}", 1 + rank % 2, host.trim()));
        command.env("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node");
        settings(rank, command);
    })
}

/// Returns rank 0's log lines about the fabric.
fn logged(outcomes: &[Outcome]) -> Vec<String> {
    for outcome in outcomes {
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout, "done\n", "{outcome:?}");
    }
    assert!(outcomes[1..].iter().all(|it| !it.stderr.contains(" topology: ")), "{outcomes:?}");
    let lines = outcomes[0].stderr.lines().filter_map(|line| line.split_once(" topology: "));
    // Every communicator logs the same lines.
    let lines: BTreeSet<String> = lines.map(|(_, what)| what.to_owned()).collect();
    lines.into_iter().collect()
}

fn refused(outcomes: &[Outcome], why: &str) {
    for outcome in outcomes {
        assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
        assert!(outcome.stdout.contains(why), "{why}: {outcome:?}");
    }
}

#[test]
fn hosts_stand_in_the_order_that_slurm_gives() {
    let lines = logged(&four(|_, _| {}));
    let what = "4 hosts in fabric order, 2 leaf groups, 1 pod: Slurm places 4 of 4 hosts";
    assert!(lines.iter().any(|line| line == what), "{lines:#?}");
}

#[test]
fn without_topology_the_log_has_no_fabric() {
    let off = |_: usize, command: &mut Command| {
        command.env("RINGFOLD_TOPO", "off").env("RINGFOLD_TOPO_FILE", "/nothing/reads/it");
    };
    assert_eq!(logged(&four(off)), ["no rank has evidence beyond the hosts of the ranks"]);
    let outcomes = four(|rank, command| {
        if rank == 2 {
            command.env("RINGFOLD_TOPO", "off");
        }
    });
    refused(&outcomes, "ranks differ in RINGFOLD_TOPO: ranks 0-1, 3 have unset, rank 2 has off");
}

#[test]
fn files_that_differ_or_are_invalid_are_refused() {
    let folder = Folder::new();
    let switches = |one: &str, other: &str| {
        let top = "SwitchName=s0 Switches=s[1-2]\n";
        format!("SwitchName=s1 Nodes={one}\nSwitchName=s2 Nodes={other}\n{top}")
    };
    let one = folder.file("1", switches("a", "b"));
    let other = folder.file("2", switches("b", "a"));
    let outcomes = four(|rank, command| {
        command.env("RINGFOLD_TOPO_FILE", if rank == 3 { &other } else { &one });
    });
    refused(&outcomes, "ranks differ in RINGFOLD_TOPO_FILE: ranks 0-2 have ");
    let broken = folder.file("3", "SwitchName=s1 Nodes=a\nSwitchName=s2 Nodez=b\n");
    let outcomes = four(|_, command| {
        command.env("RINGFOLD_TOPO_FILE", &broken);
    });
    let line = format!("(RINGFOLD_TOPO=off ignores it): {}:2: ", broken);
    refused(&outcomes, &line);
}
