//! Simulated fabrics and real tools: reads and classifies the tools' output, and compares it with
//! the simulated fabric.
//!
//! * `model`: defines fabrics; `sim`: runs `ibsim` and the tools on it;
//! * `namespaces`: LLDP between network namespaces;
//! * `scale`: measures time and memory for a site of two subnets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests may")]

mod model;
mod namespaces;
mod scale;
mod sim;

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::discover::files;
use ringfold_topology::fabric::{Classification, EndPort, Fabric, Kind, classify};
use ringfold_topology::site::Site;

use model::{Model, Rails, Start};
use sim::Sim;

/// The supported formats, each a program with its options.
const FORMS: &[&[&str]] = &[
    &["ibnetdiscover"],
    &["ibnetdiscover", "-f", "-g"],
    &["ibnetdiscover", "-p"],
    &["iblinkinfo"],
    &["iblinkinfo", "-l"],
];

/// Returns a fabric's cables in the form of `Model::shown`.
fn shown(fabric: &Fabric) -> Vec<String> {
    let name =
        |(switch, number): (usize, u16)| format!("{}[{number}]", fabric.switches[switch].name);
    let ports = fabric.ports.iter().filter_map(|port| {
        let device = format!("{} {}[{}]", port.host, port.device, port.number);
        Some(([device, name(port.attached?)], port.gbps))
    });
    let cables = fabric.cables.iter().map(|cable| (cable.ends.map(name), cable.gbps));
    let line = |(mut ends, gbps): ([String; 2], u32)| {
        ends.sort();
        format!("{} {} {gbps}", ends[0], ends[1])
    };
    let mut lines: Vec<String> = ports.chain(cables).map(line).collect();
    lines.sort();
    lines
}

/// Runs a tool in each subnet, and reads the outputs as one fabric.
fn read(sim: &Sim, starts: &[Start], form: &[&str]) -> Fabric {
    let print =
        |start: &Start| (format!("{form:?} at {start:?}"), sim.run(start, form).into_bytes());
    let printed: Vec<(String, Vec<u8>)> = starts.iter().map(print).collect();
    files::fabric(&printed).unwrap_or_else(|error| panic!("{error}"))
}

/// The expected classification of a fabric.
#[derive(Clone, Copy)]
struct Truth {
    kind: fn(&Kind) -> bool,
    planes: u8,
}

/// Simulates `model` and compares it with the output of all tools, at first and after each pulled
/// cable. `pulled` has numbers of cables, modulo their count.
fn check(mut model: Model, pulled: &[usize], truth: Truth, rail: impl Fn(&EndPort) -> (usize, u8)) {
    if !sim::is_there() {
        return;
    }
    let starts = model.starts();
    // iblinkinfo needs LIDs from a subnet manager, and must run on a host.
    let are_hosts = starts.iter().all(|start| !start.is_switch);
    let forms = if are_hosts { FORMS } else { &FORMS[..3] };
    let mut sim = Sim::start(&model);
    for start in starts.iter().filter(|_| are_hosts) {
        sim.manage(start);
    }
    let is_start = |model: &Model, number: usize| {
        let mut starts = starts.iter();
        model.cables[number].iter().any(|(name, _)| starts.any(|start| start.node == *name))
    };
    let numbers = [None].into_iter().chain(pulled.iter().map(Some));
    for number in numbers {
        if let Some(number) = number {
            let count = model.cables.len();
            let number = (0..count).map(|more| (number + more) % count);
            let number = number.into_iter().find(|number| !is_start(&model, *number)).unwrap();
            sim.pull(&model.pull(number));
        }
        for form in forms {
            let fabric = read(&sim, &starts, form);
            assert_eq!(shown(&fabric), model.shown(), "{form:?}");
            classified(&fabric, truth, &rail);
        }
    }
}

/// Checks kind and rails, and that the site file has the same.
fn classified(fabric: &Fabric, truth: Truth, rail: impl Fn(&EndPort) -> (usize, u8)) {
    let found = classify(fabric);
    assert!((truth.kind)(&found.kind.value), "{:?}", found.kind);
    assert_eq!(found.planes.value, truth.planes, "{:?}", found.planes);
    let mut places: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (port, (place, _)) in fabric.ports.iter().zip(&found.places) {
        let place = place.unwrap_or_else(|| panic!("{port:?} has no place in {found:#?}"));
        places.entry(place).or_default().insert(rail(port));
    }
    assert!(places.values().all(|rails| rails.len() == 1), "{places:?} {found:#?}");
    let rails: BTreeSet<_> = places.values().flatten().collect();
    assert_eq!(rails.len(), places.len(), "a rail has several places: {places:?}");
    site(fabric, &found);
}

fn site(fabric: &Fabric, found: &Classification) {
    let site = Site::of(fabric, found);
    let read = Site::parse("site", &site.write()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read, site);
    let ports = read.ports();
    for (port, (place, _)) in fabric.ports.iter().zip(&found.places) {
        let (host, found) = ports[&port.id];
        assert_eq!((&host.name, found.place), (&port.host, *place));
    }
}

/// Returns the rail of a port: the number at the end of its device's name.
fn by_device(port: &EndPort) -> (usize, u8) {
    (port.device.rsplit('_').next().unwrap().parse().unwrap(), 0)
}

/// Puts all ports on one rail.
fn alone(_: &EndPort) -> (usize, u8) {
    (0, 0)
}

/// Puts port n of a device in plane n.
fn by_port(port: &EndPort) -> (usize, u8) {
    (0, port.number)
}

const RAIL_OPTIMIZED: Truth = Truth { kind: |kind| *kind == Kind::RailOptimized, planes: 1 };
const RAIL_ONLY: Truth = Truth { kind: |kind| *kind == Kind::RailOnly, planes: 1 };
const SINGLE: Truth = Truth { kind: |kind| *kind == Kind::SingleSwitch, planes: 1 };
const FAT_TREE: Truth =
    Truth { kind: |kind| matches!(kind, Kind::FatTree { levels: 2, .. }), planes: 1 };

#[test]
fn rails_of_two_groups_are_seen() {
    let rails = Rails { groups: 2, hosts: 6, rails: 4, spines: 2 };
    check(Model::rails(rails), &[7, 20, 33], RAIL_OPTIMIZED, by_device);
}

#[test]
fn eight_rails_of_64_hosts_are_seen() {
    let rails = Rails { groups: 4, hosts: 16, rails: 8, spines: 4 };
    check(Model::rails(rails), &[101, 350], RAIL_OPTIMIZED, by_device);
}

#[test]
fn rails_alone_are_seen() {
    check(Model::rails_alone(6, 3), &[4, 9], RAIL_ONLY, by_device);
}

#[test]
fn a_fat_tree_is_seen() {
    check(Model::fat_tree(4, 4, 2, 2), &[11, 30], FAT_TREE, alone);
}

#[test]
fn two_planes_are_seen() {
    let truth = Truth { planes: 2, ..FAT_TREE };
    check(Model::planes(3, 4, 2, 2), &[9, 25], truth, by_port);
}

#[test]
fn one_switch_is_seen() {
    check(Model::single(5), &[2], SINGLE, alone);
}
