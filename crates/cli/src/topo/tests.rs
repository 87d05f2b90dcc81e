//! Tests of the text, JSON and SVG of sample fabrics and machines.

use clap::{Args as _, FromArgMatches as _};
use ringfold_topology::fabric::{Classification, Fabric};

use super::{Args, sample, svg, text};

/// Returns the cells of the line that begins with `start`.
fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let is_it = |line: &&str| line.trim_start().starts_with(start);
    let Some(line) = text.lines().find(is_it) else { panic!("no line `{start}` in:\n{text}") };
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn hosts_and_rails_stand_side_by_side() {
    let (fabric, found) = sample::rails(2, 2, 3, 1);
    let text = text::fabric(&fabric, &found);
    assert_eq!(
        line(&text, "fabric"),
        ["fabric", "4 hosts, 12 ports, 7 switches, 6 cables between switches"]
    );
    let because = "port i of every host is on leaf i of its group";
    assert_eq!(line(&text, "kind"), ["kind", "rail-optimized", "certain", because]);
    assert_eq!(line(&text, "rails")[..3], ["rails", "3", "certain"]);
    assert_eq!(line(&text, "level 2"), ["level 2", "1 switch: spine0"]);
    assert_eq!(line(&text, "rail 0"), ["rail 0", "rail 1", "rail 2"]);
    assert_eq!(line(&text, "group 1"), ["group 1", "[leaf1-r0]", "[leaf1-r1]", "[leaf1-r2]"]);
    assert_eq!(line(&text, "host3"), ["host3", "mlx5_0", "mlx5_1", "mlx5_2"]);
    assert!(!text.contains('!') && !text.contains("oddit"), "{text}");
    let (group, host) = (text.find("group 1").unwrap(), text.find("host2").unwrap());
    assert!(text.find("host1").unwrap() < group && group < host, "{text}");
}

#[test]
fn oddities_stand_where_they_are_and_have_a_line() {
    let (fabric, found) = sample::faulty();
    let text = text::fabric(&fabric, &found);
    assert!(line(&text, "fabric")[1].starts_with("4 hosts, 7 ports (1 down), "), "{text}");
    assert_eq!(line(&text, "group 0"), ["group 0", "[leaf0-r0]", "[leaf0-r1]"]);
    assert_eq!(line(&text, "host0"), ["host0", "mlx5_0", "mlx5_1 down !"]);
    assert_eq!(line(&text, "host1"), ["host1", "mlx5_0 200G !", "mlx5_1"]);
    assert_eq!(line(&text, "host2"), ["host2", "mlx5_0", "mlx5_1 @leaf0-r0 !"]);
    assert_eq!(line(&text, "host3"), ["host3", "mlx5_0", "-"]);
    assert!(text.contains("\n3 oddities\n  ! host0 mlx5_1:1 has no link\n"), "{text}");
}

#[test]
fn many_hosts_that_look_alike_are_one_row() {
    let (mut fabric, found) = sample::rails(16, 32, 8, 16);
    let picture = text::fabric(&fabric, &found);
    assert_eq!(
        line(&picture, "groups 0-15, 32 hosts each")[1..3],
        ["[leaf[0-15]-r0]", "[leaf[0-15]-r1]"]
    );
    let row = line(&picture, "host[0-511] x512");
    assert_eq!((row.len(), row[8]), (9, "mlx5_7"));
    // One port that differs gives its group and its row lines of their own.
    fabric.ports[(5 * 32 + 7) * 8 + 3].attached = None;
    let picture = text::fabric(&fabric, &found);
    assert_eq!(line(&picture, "groups 0-4, 32 hosts each").len(), 9);
    assert_eq!(line(&picture, "group 5").len(), 9);
    assert_eq!(line(&picture, "host[160-166] x7").len(), 9);
    assert_eq!(line(&picture, "host167")[4], "mlx5_3 down");
    assert_eq!(line(&picture, "groups 6-15, 32 hosts each").len(), 9);
}

#[test]
fn planes_and_pods_are_named() {
    let (fabric, found) = sample::pods();
    let text = text::fabric(&fabric, &found);
    let columns = ["rail 0 plane 0", "rail 0 plane 1", "rail 1 plane 0", "rail 1 plane 1"];
    assert_eq!(line(&text, "rail 0 plane 0"), columns);
    assert_eq!(line(&text, "host7"), ["host7", "mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]);
    assert_eq!(line(&text, "pod 1, group 3")[..2], ["pod 1, group 3", "[leaf3-r0]"]);
    assert_eq!(line(&text, "level 3"), ["level 3", "2 switches: core[0-1]"]);
}

#[test]
fn a_machine_is_a_tree() {
    let text = super::machine::machine(&sample::machine());
    for expected in [
        "node7: 2 sockets, 2 NUMA nodes, 8 cores (16 CPUs), 2 GPUs, 3 RDMA devices",
        "+- socket 0, NUMA node 0: 4 cores, CPUs 0-3,8-11, 1 last-level cache",
        "|  +- PCI switch 0000:10:00.0",
        "|  |  +- GPU 0  0000:13:00.0  NVLink domain 0",
        "|  |  `- mlx5_0:1  0000:14:00.0  InfiniBand  up  400 Gb/s  LID 1  near GPU 0",
        "|  |     `- ib0  up  400 Gb/s  MTU 4092  10.1.0.1/24",
        "|  `- mlx5_2:1  0000:50:00.0  InfiniBand  up  400 Gb/s  LID 3  for storage",
        "|  |  `- mlx5_1:1  0000:92:00.0  InfiniBand  down  400 Gb/s  LID 2  near GPU 1",
        "|  `- eth0  up  400 Gb/s  MTU 4092  part of bond0  10.1.0.8/24",
        "   `- bond0  up  400 Gb/s  MTU 1500  10.1.0.9/24  of eth0",
        "note: The kernel tells stories.",
    ] {
        assert!(text.lines().any(|line| line == expected), "no `{expected}` in:\n{text}");
    }
}

#[test]
fn ports_that_are_left_out_for_their_rate_are_marked() {
    let mut machine = sample::machine();
    let of = |name: &str, machine: &ringfold_topology::machine::Machine| {
        let text = super::machine::machine(machine);
        text.lines().find(|line| line.contains(name)).unwrap().to_owned()
    };
    assert!(!of("mlx5_2:1", &machine).contains("slow"));
    machine.nics.iter_mut().find(|nic| nic.name == "mlx5_2").unwrap().ports[0].gbps = 25;
    assert!(of("mlx5_2:1", &machine).ends_with("for storage  slow, used only if named"));
    assert!(!of("mlx5_0:1", &machine).contains("slow"));
}

#[test]
fn a_machine_whose_bridges_are_a_circle_is_drawn_all_the_same() {
    let mut machine = sample::machine();
    let address = |bus| sample::address(bus, 0);
    let below = |machine: &mut ringfold_topology::machine::Machine, bus, parent| {
        let device = machine.devices.iter_mut().find(|it| it.address == address(bus));
        device.unwrap().parent = Some(address(parent));
    };
    below(&mut machine, 0x00, 0x11);
    below(&mut machine, 0x50, 0x50);
    let text = super::machine::machine(&machine);
    for name in ["GPU 0", "mlx5_0:1", "mlx5_2:1", "GPU 1"] {
        assert_eq!(text.matches(&format!("- {name}  ")).count(), 1, "{name}:\n{text}");
    }
}

#[test]
fn json_says_the_same_as_the_text() {
    let (fabric, found) = sample::faulty();
    let value = super::json::fabric(&fabric, &found).to_string();
    let value: serde_json::Value = serde_json::from_str(&value).unwrap();
    assert_eq!(value["kind"]["value"], "rail_optimized");
    assert_eq!(value["kind"]["certainty"], "certain");
    assert_eq!(value["rails"]["value"], 2);
    assert_eq!(value["crosses"]["value"], true);
    let ports = value["ports"].as_array().unwrap();
    assert_eq!(ports.len(), fabric.ports.len());
    let text = text::fabric(&fabric, &found);
    for port in ports {
        let host = port["host"].as_str().unwrap();
        let Some(rail) = port["rail"].as_u64() else {
            assert_eq!((host, port["switch"].is_null()), ("host0", true));
            continue;
        };
        if (host, port["device"].as_str()) == ("host2", Some("mlx5_1")) {
            // The text shows the port in its usual column, with its actual switch.
            assert_eq!(rail, 0);
            continue;
        }
        let cells = line(&text, host);
        let cell = cells[usize::try_from(rail).unwrap() + 1];
        assert!(cell.starts_with(port["device"].as_str().unwrap()), "{port} {cells:?}");
    }
    let switch =
        &value["switches"][usize::try_from(ports[5]["switch"]["at"].as_u64().unwrap()).unwrap()];
    assert_eq!((&switch["name"], &switch["level"]), (&"leaf0-r0".into(), &1.into()));
    assert_eq!(value["oddities"][2]["port"], ports[5]["id"]);
    let machine = super::json::machine(&sample::machine());
    assert_eq!(machine["nics"][2]["pci"], "0000:50:00.0");
    assert_eq!(machine["interfaces"][0]["addresses"][0], "10.1.0.1/24");
}

/// Returns fabrics to draw.
fn fabrics() -> Vec<(Fabric, Classification)> {
    vec![
        sample::rails(1, 8, 8, 4),
        sample::rails(2, 4, 4, 2),
        sample::rails(7, 3, 2, 20),
        sample::rails(16, 32, 8, 16),
        sample::rails(1, 1, 1, 0),
        sample::faulty(),
        sample::torus(4, 4),
        sample::torus(3, 5),
        sample::pods(),
        sample::torus(12, 12),
        (Fabric::default(), sample::rails(0, 0, 0, 0).1),
    ]
}

#[test]
fn labels_of_a_drawing_do_not_overlap() {
    for (fabric, found) in fabrics() {
        let (labels, [width, height]) = svg::labels(&fabric, &found);
        for (at, (area, label)) in labels.iter().enumerate() {
            let is_inside = area.x >= 0.0
                && area.y >= 0.0
                && area.x + area.w <= width
                && area.y + area.h <= height;
            assert!(is_inside, "`{label}` is outside: {area:?} of {width} x {height}");
            for (other, text) in &labels[at + 1..] {
                let is_apart = area.x + area.w <= other.x
                    || other.x + other.w <= area.x
                    || area.y + area.h <= other.y
                    || other.y + other.h <= area.y;
                assert!(is_apart, "`{label}` {area:?} overlaps `{text}` {other:?}");
            }
        }
    }
}

#[test]
fn a_drawing_is_xml_and_has_every_host_and_switch() {
    let (mut fabric, mut found) = sample::faulty();
    fabric.switches[2].name = "a<b&\"c\"\u{1}".to_owned();
    found.oddities[0].what = "<script>".to_owned();
    let file = svg::fabric(&fabric, &found);
    let document = roxmltree::Document::parse(&file).unwrap();
    let texts: Vec<_> = document
        .descendants()
        .filter(|it| it.has_tag_name("text"))
        .filter_map(|it| it.text())
        .collect();
    for label in [
        "rail-optimized (certain)",
        "group 0",
        "rail 0",
        "rail 1",
        "leaf0-r0",
        "leaf0-r1",
        "host0",
        "host3",
        "mlx5_1 down !",
        "mlx5_0 200G !",
        "mlx5_1 @leaf0-r0 !",
        "a<b&\"c\"?",
        "! <script>",
    ] {
        assert!(texts.contains(&label), "no `{label}` in {texts:?}");
    }
    assert!(!file.contains("href") && !file.contains("url("), "the file refers to another");
}

fn parse(line: &str) -> Result<Args, clap::Error> {
    let command = Args::augment_args(clap::Command::new("topo"));
    let matches = command.try_get_matches_from(line.split(' '))?;
    Args::from_arg_matches(&matches)
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    for fine in [
        "topo",
        "topo --json",
        "topo --root a --json",
        "topo --record b",
        "topo --from a b --json",
        "topo --from a --svg b --write c --force",
        "topo --measure --write c",
    ] {
        assert!(parse(fine).is_ok(), "{fine}");
    }
    for (line, named) in [
        ("topo --root a --from b", "--from"),
        ("topo --record a --from b", "--from"),
        ("topo --measure --from b", "--from"),
        ("topo --measure --root b", "--root"),
        ("topo --measure --record b", "--record"),
        ("topo --svg a", "--from"),
        ("topo --write a", "--from"),
        ("topo --from", "--from"),
    ] {
        let Err(error) = parse(line) else { panic!("{line} is taken") };
        assert!(error.to_string().contains(named), "{line}: {error}");
    }
}
