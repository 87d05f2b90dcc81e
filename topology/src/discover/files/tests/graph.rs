//! Readers of the output of InfiniBand's tools.

use super::*;
use crate::fabric::{EndPort, PortId};

/// A fabric as lines that can be compared, independent of the order in the file.
fn shown(fabric: &Fabric) -> Vec<String> {
    let name = |at: (usize, u16)| format!("{}[{}]", fabric.switches[at.0].name, at.1);
    let mut lines: Vec<String> = Vec::new();
    for switch in &fabric.switches {
        lines.push(format!("{} {:x} {}", switch.name, switch.id, switch.is_router));
    }
    for port in &fabric.ports {
        let at = port.attached.map(name);
        let (host, device, number, gbps) = (&port.host, &port.device, port.number, port.gbps);
        lines.push(format!("{host} {device} {number} {gbps} {:?} {at:?}", port.id));
    }
    for cable in &fabric.cables {
        let mut ends = cable.ends.map(name);
        ends.sort();
        lines.push(format!("{ends:?} {}", cable.gbps));
    }
    lines.sort();
    lines
}

#[test]
fn five_forms_of_one_fabric_are_equal() {
    let expected = fabric_of(TOPOLOGY);
    assert_eq!(expected.switches.len(), 3);
    assert_eq!(expected.cables.len(), 2);
    let mut ports: Vec<_> = expected.ports.iter().collect();
    ports.sort_by_key(|port| (&port.device, &port.host));
    let names: Vec<_> = ports.iter().map(|port| format!("{} {}", port.host, port.device)).collect();
    assert_eq!(
        names,
        ["host0 mlx5_0", "host1 mlx5_0", "host2 mlx5_0", "host0 mlx5_1", "host2 mlx5_1"]
    );
    let leaf = |port: &EndPort| expected.switches[port.attached.unwrap().0].name.as_str();
    assert!(ports[..3].iter().all(|port| leaf(port) == "leaf0" && port.gbps == 100));
    assert!(ports[3..].iter().all(|port| leaf(port) == "leaf1" && port.number == 1));
    assert_eq!(ports[0].id, PortId::Guid(0x98039b0000000001));
    for other in [GROUPED, PORTS, LINKS, LINES] {
        assert_eq!(shown(&fabric_of(other)), shown(&expected));
    }
}

#[test]
fn files_without_links_are_refused() {
    assert!(refused(LIST).reason.contains("without -l"), "{}", refused(LIST));
    let error = refused(SWITCHES);
    assert!(error.reason.contains("--switches-only"), "{error}");
    for (text, reason) in [
        ("", "no content"),
        ("# Topology file: generated on Mon\n", "no content"),
        ("hello\n", "begins no format"),
        ("<system version=\"1\"/>\n", "XML"),
        ("---\n- topology: x\n", "YAML"),
        ("{}", "neither"),
    ] {
        assert!(refused(text).reason.contains(reason), "{text}: {}", refused(text));
    }
}

#[test]
fn a_line_that_is_missing_or_twice_is_refused_with_its_number() {
    for sample in [TOPOLOGY, PORTS, LINES] {
        for (index, line) in sample.lines().enumerate() {
            let is_link = line.contains("lid") && line.starts_with('[')
                || line.contains(" - ")
                || line.contains("Active");
            if !is_link {
                continue;
            }
            let mut lines: Vec<&str> = sample.split_inclusive('\n').collect();
            let taken = lines.remove(index);
            assert!(refused(&lines.concat()).reason.contains("cut off"), "{taken}");
            lines.splice(index..index, [taken, taken]);
            let error = refused(&lines.concat());
            assert_eq!(error.line, index + 2, "{error}");
            assert!(error.reason.contains("second time"), "{error}");
        }
    }
}

#[test]
fn ends_that_contradict_each_other_are_refused() {
    let text = TOPOLOGY.replace("\"S-b8cef60000020000\"[1]", "\"S-b8cef60000020000\"[2]");
    assert!(refused(&text).reason.contains("contradicts"), "{}", refused(&text));
    let text = TOPOLOGY.replace("Switch\t4", "Switch\t2");
    let error = refused(&text);
    assert!(error.reason.contains("of a node with 2 ports"), "{error}");
}

/// One host behind one switch, as `ibnetdiscover` prints it.
fn pair(subnet: u8, description: &str, rate: &str) -> String {
    format!(
        "# Topology file: generated on Mon\n\nswitchguid=0x{subnet}00(1)\n\
         Switch 36 \"S-{subnet}00\"  # \"sw {subnet}\" base port 0 lid 1 lmc 0\n\
         [3] \"H-{subnet}01\"[1]({subnet}02)  # \"{description}\" lid 2 {rate}\n\
         [4] \"R-99\"[{subnet}]({subnet}99)  # \"router\" lid 2 {rate}\n\n\
         caguid=0x{subnet}01\nCa 1 \"H-{subnet}01\"  # \"{description}\"\n\
         [1]({subnet}02) \"S-{subnet}00\"[3]  # lid 2 lmc 0 \"sw {subnet}\" lid 1 {rate}\n\n\
         rtguid=0x99\nRt 4 \"R-99\"  # \"router\"\n\
         [{subnet}]({subnet}99) \"S-{subnet}00\"[4]  # lid 2 lmc 0 \"sw {subnet}\" lid 1 {rate}\n"
    )
}

#[test]
fn subnets_of_a_file_or_of_several_are_joined_by_their_router() {
    let (one, other) = (pair(1, "a mlx5_0", "4xNDR"), pair(2, "b mlx5_0", "4xXDR"));
    let whole = fabric_of(&format!("{one}{other}"));
    let routers: Vec<_> = whole.switches.iter().filter(|switch| switch.is_router).collect();
    assert_eq!((whole.switches.len(), routers.len(), whole.cables.len()), (3, 1, 2));
    assert_eq!(whole.ports.iter().map(|port| port.gbps).collect::<Vec<_>>(), [400, 800]);
    let files = |parts: &[&str]| -> Vec<(String, Vec<u8>)> {
        parts.iter().map(|part| ("f".to_owned(), part.as_bytes().to_vec())).collect()
    };
    assert_eq!(fabric(&files(&[&one, &other])).unwrap(), whole);
    let error = fabric(&files(&[&one, &other, &one])).unwrap_err();
    assert!(error.reason.contains("switch 0x100"), "{error}");
    assert!(fabric(&files(&[&one, LLDP])).unwrap_err().reason.contains("one network"));
    assert!(fabric(&files(&[SLURM])).unwrap_err().reason.contains("no fabric"));
    let error = refused(&format!("{one}# Topology file: generated on Tue\n"));
    assert!(error.reason.contains("no node follows"), "{error}");
}

#[test]
fn descriptions_name_host_and_device_or_nobody() {
    for (description, host, device) in [
        ("host0 mlx5_0", "host0", "mlx5_0"),
        ("host0 HCA-1", "host0", "HCA-1"),
        ("host0  HCA-1 ", "host0", "HCA-1"),
        ("host0", "host0", ""),
        ("say \"hi\" x", "say \"hi\" x", ""),
        ("MT4119 ConnectX5 Mellanox Technologies", "MT4119 ConnectX5 Mellanox Technologies", ""),
        ("localhost mlx5_0", "", "mlx5_0"),
    ] {
        let port = fabric_of(&pair(1, description, "2xNDR")).ports.remove(0);
        assert_eq!((port.host.as_str(), port.device.as_str()), (host, device), "{description}");
        assert_eq!(port.gbps, 200);
    }
    let fabric = fabric_of(&pair(1, "Mellanox Technologies Aggregation Node", "4xHDR"));
    assert!(fabric.ports.is_empty() && fabric.switches.len() == 2);
    // All adapters leave the factory with the same description.
    let text = TOPOLOGY.replace("host1 mlx5_0", "host0 mlx5_0");
    let unknown = fabric_of(&text).ports.iter().filter(|port| port.host.is_empty()).count();
    assert_eq!(unknown, 2);
}

#[test]
fn a_guid_that_is_there_twice_is_refused() {
    for (sample, from, to) in [
        (TOPOLOGY, "[1](98039b0000000101)", "[1](98039b0000000001)"),
        (LINKS, "0x98039b0000000101", "0x98039b0000000001"),
        (LINKS, "Switch: 0xb8cef60000010100", "Switch: 0xb8cef60000010000"),
    ] {
        assert!(sample.contains(from));
        let error = refused(&sample.replace(from, to));
        assert!(error.reason.contains("a second time"), "{error}");
    }
    let text = PORTS.replacen("CA    13  1", "SW    13  2", 1);
    assert!(read("a", text.as_bytes()).is_err());
}
