//! The output of `ibnetdiscover` for a site of two subnets with 24,000 end points each.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use ringfold_topology::discover::files::{Read, read};
use ringfold_topology::fabric::classify;

/// Rails of a subnet.
const RAILS: usize = 8;
/// Groups of hosts.
const GROUPS: usize = 24;
/// Hosts of a group.
const HOSTS: usize = 125;
/// Spines of a subnet.
const SPINES: usize = 64;

/// End points of a subnet.
const ENDS: usize = RAILS * GROUPS * HOSTS;

/// Writes a subnet: leaf switches, spines and adapters. A leaf switch has a port for each host of
/// its group and for each spine. The first one has a port for the router.
#[expect(clippy::too_many_lines, reason = "one line of text for each line of the file")]
fn subnet(text: &mut String, subnet: usize) {
    let leaves = RAILS * GROUPS;
    let leaf_guid = |leaf: usize| 0xa000_0000 + (subnet << 24) + leaf + 1;
    let spine_guid = |spine: usize| 0xb000_0000 + (subnet << 24) + spine + 1;
    let host_guid =
        |leaf: usize, host: usize| 0xc000_0000_0000 + (subnet << 32) + ((leaf * HOSTS + host) << 4);
    let name = |leaf: usize, host: usize| {
        let host = (subnet * GROUPS + leaf / RAILS) * HOSTS + host;
        format!("node{host:05} mlx5_{}", leaf % RAILS)
    };
    let _ = write!(text, "#\n# Topology file: generated on Mon Jan  5 00:00:00 2026\n#\n");
    for leaf in 0..leaves {
        let guid = leaf_guid(leaf);
        let _ = write!(
            text,
            "\nvendid=0x2c9\ndevid=0xd2f2\nswitchguid={guid:#x}({guid:x})\n\
             Switch\t190 \"S-{guid:016x}\"\t\t# \"leaf{subnet}-{leaf}\" base port 0 lid 1 lmc 0\n"
        );
        for host in 0..HOSTS {
            let (guid, name) = (host_guid(leaf, host), name(leaf, host));
            let (number, port) = (host + 1, guid + 1);
            let _ = writeln!(
                text,
                "[{number}]\t\"H-{guid:016x}\"[1]({port:x}) \t\t# \"{name}\" lid 9 4xNDR"
            );
        }
        for spine in 0..SPINES {
            let (guid, number, far) = (spine_guid(spine), HOSTS + spine + 1, leaf + 1);
            let _ = writeln!(
                text,
                "[{number}]\t\"S-{guid:016x}\"[{far}]\t\t# \"spine{spine}\" lid 9 4xNDR"
            );
        }
        if leaf == 0 {
            let _ = writeln!(
                text,
                "[190]\t\"R-000000000000d000\"[{}](d00{subnet})\t\t# \"router\" lid 9 4xNDR",
                subnet + 1
            );
        }
    }
    for spine in 0..SPINES {
        let guid = spine_guid(spine);
        let _ = write!(
            text,
            "\nswitchguid={guid:#x}({guid:x})\n\
             Switch\t192 \"S-{guid:016x}\"\t\t# \"spine{spine}\" base port 0 lid 1 lmc 0\n"
        );
        for leaf in 0..leaves {
            let (guid, number, far) = (leaf_guid(leaf), leaf + 1, HOSTS + spine + 1);
            let _ = writeln!(
                text,
                "[{number}]\t\"S-{guid:016x}\"[{far}]\t\t# \"leaf{leaf}\" lid 9 4xNDR"
            );
        }
    }
    for leaf in 0..leaves {
        for host in 0..HOSTS {
            let (guid, name, far) = (host_guid(leaf, host), name(leaf, host), leaf_guid(leaf));
            let (number, port) = (host + 1, guid + 1);
            let _ = write!(
                text,
                "\nvendid=0x2c9\ndevid=0x1021\nsysimgguid={guid:#x}\ncaguid={guid:#x}\n\
                 Ca\t1 \"H-{guid:016x}\"\t\t# \"{name}\"\n\
                 [1]({port:x}) \t\"S-{far:016x}\"[{number}]\t\t# lid 9 lmc 0 \"leaf\" lid 1 4xNDR\n"
            );
        }
    }
    let far = leaf_guid(0);
    let _ = write!(
        text,
        "\nrtguid=0xd000\nRt\t2 \"R-000000000000d000\"\t\t# \"router\"\n\
         [{}](d00{subnet}) \t\"S-{far:016x}\"[190]\t\t# lid 9 lmc 0 \"leaf\" lid 1 4xNDR\n",
        subnet + 1
    );
}

/// Prints the time of reading and classifying, and the peak memory of the process.
#[test]
#[ignore = "prints figures"]
fn two_subnets_of_24_000_end_points() {
    let mut text = String::new();
    subnet(&mut text, 0);
    subnet(&mut text, 1);
    let start = Instant::now();
    let Read::Fabric(fabric) = read("two-subnets", text.as_bytes()).unwrap() else {
        panic!("it is a fabric")
    };
    let reading = start.elapsed();
    assert_eq!(fabric.ports.len(), 2 * ENDS);
    assert_eq!(fabric.switches.len(), 2 * (RAILS * GROUPS + SPINES) + 1);
    assert_eq!(fabric.cables.len(), 2 * (RAILS * GROUPS * SPINES + 1));
    let found = classify(&fabric);
    let both = start.elapsed();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    println!(
        "{} bytes: read in {reading:.2?}, read and classified in {both:.2?}; {peak}; {:?} ({}), \
         {} subnets",
        text.len(),
        found.kind.value,
        found.kind.certainty,
        found.subnets.value
    );
}
