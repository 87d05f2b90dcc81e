//! LLDP of hosts, and the places of hosts according to Slurm.

use super::*;
use crate::fabric::PortId;

fn lldp(file: &str, text: &str) -> Lldp {
    match read(file, text.as_bytes()) {
        Ok(Read::Lldp(lldp)) => lldp,
        other => panic!("{other:?}"),
    }
}

/// LLDP output of a host with these neighbours: interface, chassis, port and capability.
fn heard(entries: &[(&str, &str, &str, &str)]) -> String {
    let entry = |(interface, chassis, port, capability): &(&str, &str, &str, &str)| {
        format!(
            r#"{{"{interface}": {{"via": "LLDP", "chassis": {{"{chassis}": {{
                "id": {{"type": "local", "value": "{chassis}"}},
                "capability": {{"type": "{capability}", "enabled": true}}}}}},
                "port": {{"id": {{"type": "ifname", "value": "{port}"}}}}}}}}"#
        )
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    format!("{{\"lldp\": {{\"interface\": [{}]}}}}\n", entries.join(","))
}

#[test]
fn a_host_hears_its_switches() {
    for text in [LLDP, LLDP_VERBOSE] {
        let host = lldp("dir/h7.json", text);
        assert_eq!(host.host, "h7");
        let names: Vec<_> = host
            .neighbours
            .iter()
            .map(|heard| (heard.interface.as_str(), heard.name.as_str(), heard.port.as_str()))
            .collect();
        assert_eq!(names, [("a0", "leaf0", "p1"), ("a1", "leaf0", "p2")]);
        // The neighbour in the sample has the capabilities of a host.
        assert_eq!(host.switch("a0"), None);
        let host = lldp("h7", &text.replacen("\"enabled\": false", "\"enabled\": true", 1));
        assert_eq!(host.switch("a0").map(|switch| switch.port.as_str()), Some("p1"));
        assert_eq!(host.switch("a2"), None);
    }
}

#[test]
fn local_ports_add_the_name_of_the_host_and_addresses() {
    for text in [[LLDP, LLDP_LOCAL].concat(), [LLDP_LOCAL, LLDP].concat()] {
        let host = lldp("x.json", &text);
        assert_eq!(host.host, "hostA");
        let macs: Vec<_> = host.neighbours.iter().map(|heard| heard.mac).collect();
        assert_eq!(macs, [Some(0x0200_0000_0a00), Some(0x0200_0000_0a01)]);
        let fabric = lldp::fabric(&[host]);
        assert_eq!(fabric.ports[0].id, PortId::Mac(0x0200_0000_0a00));
    }
}

#[test]
fn hosts_make_a_fabric() {
    let files: Vec<(String, Vec<u8>)> = (0..3)
        .map(|host| {
            let port = format!("Ethernet1/{}", host + 1);
            let text = heard(&[
                ("eth0", "leaf0", &port, "Bridge"),
                ("eth1", "leaf1", &port, "Router"),
                ("eth2", "other", "eth0", "Station"),
            ]);
            (format!("h{host}.json"), text.into_bytes())
        })
        .collect();
    let fabric = fabric(&files).unwrap();
    let names: Vec<_> = fabric.switches.iter().map(|switch| switch.name.as_str()).collect();
    assert_eq!(names, ["leaf0", "leaf1"]);
    for (index, port) in fabric.ports.iter().enumerate() {
        let (host, rail) = (index / 3, index % 3);
        assert_eq!((&port.host, &port.device), (&format!("h{host}"), &format!("eth{rail}")));
        let number = u16::try_from(host + 1).unwrap();
        assert_eq!(port.attached, (rail < 2).then_some((rail, number)));
        assert_eq!(port.id, PortId::named(&port.host, &port.device));
    }
    let twice = [files[0].clone(), ("b/h0.json".to_owned(), files[1].1.clone())];
    assert!(super::fabric(&twice).unwrap_err().reason.contains("h0.json"));
}

#[test]
fn several_neighbours_leave_an_interface_open() {
    let text = heard(&[("e", "s0", "1", "Bridge"), ("e", "s1", "1", "Bridge")]);
    let host = lldp("h", &text);
    assert_eq!((host.neighbours.len(), host.switch("e")), (2, None));
    assert_eq!(lldp::fabric(&[host]).ports[0].attached, None);
    // A host beside the switch does not matter, nor does another protocol of the switch.
    let text = heard(&[("e", "s0", "1", "Bridge"), ("e", "h1", "1", "Station")]);
    assert!(lldp("h", &text).switch("e").is_some());
    let text = heard(&[("e", "s0", "1", "Bridge"), ("e", "s1", "1", "Bridge")]);
    assert!(lldp("h", &text.replacen("LLDP", "CDPv2", 1)).switch("e").is_some());
}

#[test]
fn ports_get_the_numbers_that_they_end_in_if_these_differ() {
    let attached = |names: [&str; 2]| {
        let text = heard(&[("e0", "s", names[0], "Bridge"), ("e1", "s", names[1], "Bridge")]);
        let fabric = lldp::fabric(&[lldp("h", &text)]);
        [0, 1].map(|port: usize| fabric.ports[port].attached.unwrap().1)
    };
    assert_eq!(attached(["swp7", "swp12"]), [7, 12]);
    assert_eq!(attached(["1/1", "2/1"]), [1, 2]);
    assert_eq!(attached(["b", "a"]), [2, 1]);
}

#[test]
fn a_missing_identifier_is_refused_with_its_line() {
    let text = "{\"lldp\": {\"interface\": [\n{\"e0\":\n {\"via\": \"LLDP\"}}]}}\n";
    assert_eq!(refused(text).to_string(), "a.txt:2: interface \"e0\" has no chassis identifier");
    assert!(refused("{\"lldp\": {\"interface\": [7]}}\n").reason.contains("not a JSON object"));
    assert_eq!(lldp("h", "{\"lldp\": {}}\n").neighbours, []);
}

fn slurm(text: &str) -> BTreeMap<String, HostPath> {
    match read("topology.conf", text.as_bytes()) {
        Ok(Read::Slurm(hosts)) => hosts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn slurm_puts_hosts_below_switches() {
    let hosts = slurm(SLURM);
    assert_eq!(hosts.len(), 10);
    assert_eq!(hosts["n00"].groups, ["core", "p0", "s0"]);
    assert_eq!(hosts["x"].groups, ["core", "p0", "s1"]);
    assert_eq!(hosts["n08"].groups, ["core", "p1", "s2"]);
    // `scontrol show topology` lists nodes at upper switches, too.
    let shown = "SwitchName=top Level=1 LinkSpeed=1 Nodes=a[1-4] Switches=s[1-2]\n\
                 SwitchName=s1 Level=0 LinkSpeed=1 Nodes=a[1-2]\n\
                 SwitchName=s2 Level=0 LinkSpeed=1 Nodes=a[3-4]\n";
    assert_eq!(slurm(shown)["a3"].groups, ["top", "s2"]);
    let blocks = slurm("BlockName=b1 Nodes=a[1-2]\nBlockName=b2 Nodes=a3\nBlockSizes=2,4\n");
    assert_eq!(blocks["a3"].groups, ["b2"]);
}

#[test]
fn slurm_nonsense_is_refused_with_its_line() {
    for (text, line, reason) in [
        ("SwitchName=a Nodes=n[1-\n", 1, "do not pair"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n", 2, "node \"n1\""),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", 2, "second time"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=c\n", 2, "does not have"),
        ("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Switches=a\n", 1, "circle"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n", 3, "below"),
        ("SwitchName=a Nodes=n1 Color=red\n", 1, "Color=red"),
        ("SwitchName=a Nodes=n[0-999999999]\n", 1, "more than 262144 hosts"),
        ("SwitchName=a Nodes=n1,\n", 1, "an empty name"),
        ("SwitchName=a\n", 1, "no node"),
        ("SwitchName=a Nodes=b\nNodes=c\n", 2, "without a SwitchName"),
        ("SwitchName=a Nodes=b \\\n", 1, "backslash"),
    ] {
        let error = refused(text);
        assert_eq!(error.line, line, "{error}");
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn slurm_tells_a_task_where_it_is() {
    let groups = |address, pattern| slurm::address(address, pattern).map(|it| it.0.groups);
    let node = slurm::address("s1.node7.example.org", "switch.node").map(|it| it.1);
    assert_eq!(node, Some("node7.example.org"));
    let deep = groups("root.s1.s5.node7", "switch.switch.switch.node");
    assert_eq!(deep.unwrap(), ["root", "s1", "s5"]);
    assert_eq!(groups("s1.node7.example.org", "switch.node").unwrap(), ["s1"]);
    assert_eq!(groups("b3.n1", "block.node").unwrap(), ["b3"]);
    for (address, pattern) in [
        ("node7", "node"),
        ("s1.n1", "switch.switch.node"),
        ("s1..n1", "switch.switch.node"),
        ("s1.", "switch.node"),
        ("s1.n1", "rack.node"),
        ("s1.n1", "node.switch"),
        ("", ""),
    ] {
        assert_eq!(groups(address, pattern), None, "{address} {pattern}");
    }
}
