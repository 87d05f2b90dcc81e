//! Small fabrics of every kind. `topology/tests/fabrics` has harmed ones.

use super::{Cable, Classification, EndPort, Fabric, Kind, Place, PortId, Ratio, Switch, classify};
use crate::certainty::Certainty::{Certain, Unknown};

/// A fabric under construction.
#[derive(Default)]
struct Build {
    fabric: Fabric,
}

impl Build {
    fn switch(&mut self, name: String) -> usize {
        let id = 0x1000 + self.fabric.switches.len() as u64;
        self.fabric.switches.push(Switch { id, name, is_router: false });
        self.fabric.switches.len() - 1
    }

    fn switches(&mut self, name: &str, count: usize) -> Vec<usize> {
        (0..count).map(|number| self.switch(format!("{name}-{number}"))).collect()
    }

    fn cable(&mut self, a: usize, b: usize) {
        self.fabric.cables.push(Cable { ends: [(a, 1), (b, 1)], gbps: 400 });
    }

    fn join_all(&mut self, low: &[usize], high: &[usize]) {
        for a in low {
            high.iter().for_each(|b| self.cable(*a, *b));
        }
    }

    fn port(&mut self, host: usize, device: usize, number: u8, leaf: usize) {
        self.fabric.ports.push(EndPort {
            id: PortId::Guid(self.fabric.ports.len() as u64),
            host: format!("node{host}"),
            device: format!("mlx5_{device}"),
            number,
            gbps: 400,
            attached: Some((leaf, 1)),
        });
    }

    /// Adds hosts with a port on each of these leaf switches.
    fn hosts(&mut self, hosts: std::ops::Range<usize>, leaves: &[usize]) {
        for host in hosts {
            for (device, leaf) in leaves.iter().enumerate() {
                self.port(host, device, 1, *leaf);
            }
        }
    }
}

/// Leaf groups of rail switches, with spines above all of them.
fn rail_optimized(groups: usize, hosts: usize, rails: usize, spines: usize) -> Build {
    let mut build = Build::default();
    let spines = build.switches("spine", spines);
    for group in 0..groups {
        let leaves = build.switches(&format!("leaf-{group}"), rails);
        build.join_all(&leaves, &spines);
        build.hosts(group * hosts..(group + 1) * hosts, &leaves);
    }
    build
}

/// One leaf switch for each group, with all ports of its hosts.
fn fat_tree(leaves: usize, hosts: usize, ports: usize, spines: usize) -> Build {
    let mut build = Build::default();
    let spines = build.switches("spine", spines);
    for number in 0..leaves {
        let leaf = build.switch(format!("leaf-{number}"));
        build.join_all(&[leaf], &spines);
        build.hosts(number * hosts..(number + 1) * hosts, &vec![leaf; ports]);
    }
    build
}

/// A network for each rail, with leaf and spine switches, or with one switch.
fn rail_only(groups: usize, hosts: usize, rails: usize, spines: usize) -> Build {
    let mut build = Build::default();
    let leaves: Vec<Vec<usize>> =
        (0..rails).map(|rail| build.switches(&format!("leaf-{rail}"), groups)).collect();
    for leaves in leaves.iter().filter(|_| groups > 1) {
        let spines = build.switches("spine", spines);
        build.join_all(leaves, &spines);
    }
    for group in 0..groups {
        let own: Vec<usize> = leaves.iter().map(|leaves| leaves[group]).collect();
        build.hosts(group * hosts..(group + 1) * hosts, &own);
    }
    build
}

/// Switches on a grid, each with hosts.
fn grid(dims: &[usize], is_torus: bool, hosts: usize) -> Build {
    let mut build = Build::default();
    let size = dims.iter().product();
    let switches = build.switches("sw", size);
    for at in 0..size {
        let mut stride = 1;
        for dim in dims {
            let own = at / stride % dim;
            for other in 0..*dim {
                let is_next = other == (own + 1) % dim || own == (other + 1) % dim;
                if other > own && (!is_torus || is_next) {
                    build.cable(switches[at], switches[at + (other - own) * stride]);
                }
            }
            stride *= dim;
        }
        build.hosts(at * hosts..(at + 1) * hosts, &[switches[at]]);
    }
    build
}

/// Groups of leaf and spine switches. Every spine has a cable between each two groups.
fn dragonfly(groups: usize, leaves: usize, spines: usize, hosts: usize) -> Build {
    let mut build = Build::default();
    let mut all = Vec::new();
    for group in 0..groups {
        let high = build.switches(&format!("spine-{group}"), spines);
        let low = build.switches(&format!("leaf-{group}"), leaves);
        build.join_all(&low, &high);
        for (number, leaf) in low.iter().enumerate() {
            let first = (group * leaves + number) * hosts;
            build.hosts(first..first + hosts, &[*leaf]);
        }
        all.push(high);
    }
    for a in 0..groups {
        for b in a + 1..groups {
            (0..spines).for_each(|spine| build.cable(all[a][spine], all[b][(spine + b) % spines]));
        }
    }
    build
}

fn show(found: &Classification) -> String {
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        found.kind, found.rails, found.planes, found.subnets, found.crosses, found.oddities
    )
}

#[test]
fn whole_fabrics_have_their_kind() {
    let ratio = |a, b| Kind::FatTree { levels: 2, oversubscription: Ratio(a, b) };
    let cases: Vec<(&str, Build, Kind, u16)> = vec![
        ("rail optimized", rail_optimized(4, 8, 8, 8), Kind::RailOptimized, 8),
        ("fat tree", fat_tree(8, 4, 2, 8), ratio(1, 1), 0),
        ("oversubscribed", fat_tree(8, 8, 2, 8), ratio(2, 1), 0),
        ("one leaf", fat_tree(1, 4, 2, 0), Kind::SingleSwitch, 0),
        ("rail only", rail_only(1, 8, 8, 0), Kind::RailOnly, 8),
        ("rail only, large", rail_only(4, 8, 8, 4), Kind::RailOnly, 8),
        ("torus", grid(&[5, 6], true, 2), Kind::Torus { dims: vec![5, 6] }, 0),
        ("torus 3", grid(&[5, 4, 6], true, 2), Kind::Torus { dims: vec![4, 5, 6] }, 0),
        ("torus 4", grid(&[3, 4, 4, 3], true, 2), Kind::Torus { dims: vec![3, 3, 4, 4] }, 0),
        ("cube", grid(&[2, 2, 2, 2], true, 2), Kind::HyperX { dims: vec![2; 4] }, 0),
        ("hyperx", grid(&[4, 6], false, 2), Kind::HyperX { dims: vec![4, 6] }, 0),
        ("mesh", grid(&[8], false, 2), Kind::HyperX { dims: vec![8] }, 0),
        ("dragonfly+", dragonfly(5, 4, 4, 4), Kind::DragonflyPlus, 0),
    ];
    for (name, build, kind, rails) in cases {
        let found = classify(&build.fabric);
        assert_eq!(found.kind.value, kind, "{name}: {}", show(&found));
        assert_eq!(found.rails.value, rails, "{name}: {}", show(&found));
        assert_ne!(found.kind.certainty, Unknown, "{name}");
        assert_eq!(found.oddities, [], "{name}");
        let is_certain = found.places.iter().all(|(_, certainty)| *certainty == Certain);
        assert!(is_certain, "{name}: {}", show(&found));
    }
}

#[test]
fn ports_of_one_device_tell_planes() {
    let mut build = Build::default();
    let leaves: Vec<Vec<usize>> = (0..2)
        .map(|plane| {
            let spines = build.switches(&format!("spine-{plane}"), 4);
            let leaves = build.switches(&format!("leaf-{plane}"), 8);
            build.join_all(&leaves, &spines);
            leaves
        })
        .collect();
    for host in 0..16 {
        for device in 0..4 {
            for (plane, number) in [(0, 1), (1, 2)] {
                build.port(host, device, number, leaves[plane][host / 8 * 4 + device]);
            }
        }
    }
    let found = classify(&build.fabric);
    assert_eq!(found.kind.value, Kind::RailOptimized, "{}", show(&found));
    assert_eq!((found.planes.value, found.planes.certainty), (2, Certain));
    assert_eq!((found.rails.value, found.rails.certainty), (4, Certain));
    for (port, (place, certainty)) in build.fabric.ports.iter().zip(&found.places) {
        let rail = port.device[5..].parse().expect("a number");
        assert_eq!((*place, *certainty), (Some(Place { rail, plane: port.number - 1 }), Certain));
    }
    assert_eq!(found.subnets.value, 2);
}

#[test]
fn a_cable_in_the_wrong_leaf_is_named() {
    let mut build = rail_optimized(4, 8, 8, 8);
    let wrong = build.fabric.ports[1].attached.expect("attached");
    build.fabric.ports[0].attached = Some(wrong);
    build.fabric.ports[70].gbps = 100;
    build.fabric.ports[100].attached = None;
    let found = classify(&build.fabric);
    assert_eq!(found.places[0], (Some(Place { rail: 1, plane: 0 }), Certain));
    let named = |port, words: &[&str]| {
        let mut odd = found.oddities.iter().filter(|odd| odd.port == Some(port));
        odd.any(|odd| words.iter().all(|word| odd.what.contains(word)))
    };
    assert!(named(0, &["node0 mlx5_0:1", "leaf-0-1", "rail 1"]), "{}", show(&found));
    assert!(named(70, &["node8 mlx5_6:1", "100 Gbit/s", "400"]), "{}", show(&found));
    assert!(named(100, &["node12 mlx5_4:1", "down"]), "{}", show(&found));
    assert_eq!(found.kind.value, Kind::RailOptimized);
}

#[test]
fn storage_and_aggregation_nodes_have_no_place() {
    let mut build = rail_optimized(2, 8, 4, 4);
    let fast = build.fabric.ports.len();
    let storage = build.switch("storage".to_owned());
    (0..16).for_each(|host| build.port(host, 9, 1, storage));
    build.port(99, 0, 1, 5);
    let node = build.fabric.ports.last_mut().expect("a port");
    node.host = "Mellanox".to_owned();
    node.device = "Technologies Aggregation Node".to_owned();
    let found = classify(&build.fabric);
    assert_eq!((found.kind.value.clone(), found.rails.value), (Kind::RailOptimized, 4));
    assert!(found.places[..fast].iter().all(|(_, certainty)| *certainty == Certain));
    assert!(found.places[fast..].iter().all(|(place, _)| place.is_none()));
    assert_eq!(found.subnets.value, 2);
}

#[test]
fn fabrics_that_cannot_be_are_unknown() {
    let mut twins = rail_optimized(2, 4, 2, 2).fabric;
    twins.switches[1].id = twins.switches[0].id;
    let found = classify(&twins);
    assert_eq!((found.kind.certainty, found.rails.certainty), (Unknown, Unknown));
    let mut broken = rail_optimized(2, 4, 2, 2).fabric;
    broken.ports[0].attached = Some((1000, 1));
    broken.ports[2].id = broken.ports[1].id;
    broken.cables[0].ends[0].0 = usize::MAX;
    broken.cables[1].ends[1] = broken.cables[1].ends[0];
    let found = classify(&broken);
    assert!(found.places[..3].iter().all(|place| *place == (None, Unknown)));
    assert_eq!(found.oddities.iter().filter(|odd| odd.port.is_some()).count(), 2);
    assert_eq!(classify(&Fabric::default()).kind.certainty, Unknown);
}

#[test]
fn without_cables_between_switches_little_is_certain() {
    let mut fabric = rail_optimized(2, 8, 4, 4).fabric;
    fabric.cables.clear();
    fabric.is_partial = true;
    let found = classify(&fabric);
    assert_eq!((found.kind.certainty, found.crosses.certainty), (Unknown, Unknown));
    assert!(found.places.iter().all(|(_, certainty)| *certainty < Certain), "{}", show(&found));
}

#[test]
fn hosts_on_a_torus_follow_its_dimensions() {
    let build = grid(&[5, 6], true, 1);
    let found = classify(&build.fabric);
    let numbers: Vec<usize> =
        found.hosts.iter().map(|host| host.host[4..].parse().expect("a number")).collect();
    for pair in numbers.windows(2) {
        let near = |a: usize, b: usize, dim: usize| a.abs_diff(b) == 1 || a.abs_diff(b) == dim - 1;
        let (a, b) = ((pair[0] % 5, pair[0] / 5), (pair[1] % 5, pair[1] / 5));
        let is_step = (a.0 == b.0 && near(a.1, b.1, 6)) || (a.1 == b.1 && near(a.0, b.0, 5));
        assert!(is_step, "{numbers:?}");
    }
}
