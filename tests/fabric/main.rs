//! Fabrics as the real tools see them: what they print is read, classified, and compared with what
//! was built.
//!
//! * `model`: fabrics by their definition; `sim`: `ibsim` and the tools on it;
//! * `namespaces`: LLDP between network namespaces;
//! * `scale`: a site of two subnets, for its time and memory.

mod model;
mod namespaces;
mod scale;
mod sim;

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::certainty::Certainty;
use ringfold_topology::discover::files;
use ringfold_topology::fabric::{Classification, Fabric, Kind, classify};
use ringfold_topology::site::Site;

use model::{Model, Rails};
use sim::Sim;

/// The forms that are read, each a program with its options.
const FORMS: &[&[&str]] = &[
    &["ibnetdiscover"],
    &["ibnetdiscover", "-f", "-g"],
    &["ibnetdiscover", "-p"],
    &["iblinkinfo"],
    &["iblinkinfo", "-l"],
];

/// A fabric's cables as `Model::shown` has them.
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

/// What each form of each subnet says, read as one fabric.
fn read(sim: &Sim, starts: &[&str], form: &[&str]) -> Fabric {
    let print = |start: &&str| (format!("{form:?} at {start}"), sim.run(start, form).into_bytes());
    let printed: Vec<(String, Vec<u8>)> = starts.iter().map(print).collect();
    files::fabric(&printed).unwrap_or_else(|error| panic!("{error}"))
}

/// What is true of a fabric's kind.
type Truth = fn(&Kind) -> bool;

/// Builds `model`, pulls cables (by numbers modulo how many there are), and compares all that the
/// tools print with what there is.
fn check(mut model: Model, pulled: &[usize], kind: Truth, rail: impl Fn(&str) -> usize) {
    if !sim::is_there() {
        return;
    }
    let starts: Vec<String> = model.starts().into_iter().map(str::to_owned).collect();
    let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
    let mut sim = Sim::start(&model);
    for start in &starts {
        sim.manage(start);
    }
    let is_start = |model: &Model, number: usize| {
        model.cables[number].iter().any(|(name, _)| starts.contains(&name.as_str()))
    };
    let numbers = [None].into_iter().chain(pulled.iter().map(Some));
    for number in numbers {
        if let Some(number) = number {
            let count = model.cables.len();
            let number = (0..count).map(|more| (number + more) % count);
            let number = number.into_iter().find(|number| !is_start(&model, *number)).unwrap();
            sim.pull(&model.pull(number));
        }
        for form in FORMS {
            let fabric = read(&sim, &starts, form);
            assert_eq!(shown(&fabric), model.shown(), "{form:?}");
            classified(&fabric, kind, &rail);
        }
    }
}

/// Kind and rails are right, and the site file says the same.
fn classified(fabric: &Fabric, kind: Truth, rail: impl Fn(&str) -> usize) {
    let found = classify(fabric);
    assert!(kind(&found.kind.value), "{:?}", found.kind);
    let mut by_place: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    for (port, (place, certainty)) in fabric.ports.iter().zip(&found.places) {
        if *certainty == Certainty::Certain {
            let rail = rail(&port.device);
            by_place.entry(place).or_default().insert(rail);
        }
    }
    assert!(by_place.values().all(|rails| rails.len() == 1), "{by_place:?} {found:#?}");
    let rails: BTreeSet<_> = by_place.values().flatten().collect();
    assert_eq!(rails.len(), by_place.len(), "one rail has several places: {by_place:?}");
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

/// The number that a device's name ends in.
fn device(name: &str) -> usize {
    name.rsplit('_').next().unwrap().parse().unwrap()
}

#[test]
fn rails_of_two_groups_are_seen() {
    let rails = Rails { groups: 2, hosts: 6, rails: 4, spines: 2 };
    check(Model::rails(rails), &[7, 20, 33], |kind| *kind == Kind::RailOptimized, device);
}

#[test]
fn eight_rails_of_64_hosts_are_seen() {
    let rails = Rails { groups: 4, hosts: 16, rails: 8, spines: 4 };
    check(Model::rails(rails), &[101, 350], |kind| *kind == Kind::RailOptimized, device);
}

#[test]
fn rails_alone_are_seen() {
    let kind: Truth = |kind| *kind == Kind::RailOnly;
    check(Model::rails_alone(6, 3), &[4, 9], kind, device);
}

#[test]
fn a_fat_tree_is_seen() {
    let kind: Truth = |kind| matches!(kind, Kind::FatTree { levels: 2, .. });
    check(Model::fat_tree(4, 4, 2, 2), &[11, 30], kind, |_| 0);
}

#[test]
fn two_planes_are_seen() {
    let kind: Truth = |kind| matches!(kind, Kind::FatTree { levels: 2, .. });
    check(Model::planes(3, 4, 2, 2), &[9, 25], kind, device);
}

#[test]
fn one_switch_is_seen() {
    check(Model::single(5), &[2], |kind| *kind == Kind::SingleSwitch, |_| 0);
}
