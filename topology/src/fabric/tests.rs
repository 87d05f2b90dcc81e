//! Small fabrics of every kind, whole and with faults.

use std::collections::BTreeMap;

use super::{Cable, Classification, EndPort, Fabric, Kind, Place, PortId, Ratio, Switch, classify};
use crate::certainty::Certainty::{Certain, Unknown};

/// Random numbers by Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("fits")
    }
}

/// A fabric that grows.
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

    /// Hosts with a port on each of these leaf switches.
    fn hosts(&mut self, hosts: std::ops::Range<usize>, leaves: &[usize]) {
        for host in hosts {
            for (device, leaf) in leaves.iter().enumerate() {
                self.port(host, device, 1, *leaf);
            }
        }
    }
}

/// Leaf groups of rail switches with spines above all.
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

/// One leaf switch a group, with all ports of its hosts.
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

/// A network for each rail, with leaf and spine switches, or one switch.
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

/// Groups of leaf and spine switches, with a cable between each two groups for every spine.
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

/// Takes `percent` of all cables out or plugs one end elsewhere.
fn harm(fabric: &mut Fabric, percent: usize, random: &mut Random) {
    let switches = fabric.switches.len();
    let leaves: Vec<usize> =
        fabric.ports.iter().filter_map(|port| Some(port.attached?.0)).collect();
    for port in &mut fabric.ports {
        if random.below(100) < percent {
            let leaf = leaves[random.below(leaves.len())];
            port.attached = (random.below(2) == 0).then_some((leaf, 99));
        }
    }
    let mut cables = std::mem::take(&mut fabric.cables);
    cables.retain_mut(|cable| {
        if random.below(100) >= percent {
            return true;
        }
        cable.ends[random.below(2)] = (random.below(switches), 99);
        random.below(2) == 0 && cable.ends[0].0 != cable.ends[1].0
    });
    fabric.cables = cables;
}

/// Which ports have one label, as the least port with it.
fn labels(classes: &[Option<Place>]) -> Vec<Option<usize>> {
    let mut first = BTreeMap::new();
    let label = |(port, place): (usize, &Option<Place>)| {
        (*place).map(|place| *first.entry(place).or_insert(port))
    };
    classes.iter().enumerate().map(label).collect()
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

/// Fabrics of all kinds, of random size.
fn any(random: &mut Random) -> (&'static str, Build) {
    let mut between = |low: usize, high: usize| low + random.below(high - low + 1);
    let rails = [2, 4, 8, 16][between(0, 3)];
    let (groups, hosts, spines) = (between(2, 16), between(2, 32), between(2, 16));
    match between(0, 7) {
        0 | 1 => ("rail optimized", rail_optimized(groups, hosts, rails, spines)),
        2 => ("fat tree", fat_tree(groups, hosts, rails, spines)),
        3 => ("rail only", rail_only(1, hosts * groups, rails, 0)),
        4 => ("rail only, large", rail_only(groups, hosts, rails, spines)),
        5 => {
            let dims: Vec<usize> = (0..between(2, 3)).map(|_| between(3, 7)).collect();
            ("torus", grid(&dims, true, between(1, 4)))
        }
        6 => {
            let dims: Vec<usize> = (0..between(1, 3)).map(|_| between(2, 6)).collect();
            ("hyperx", grid(&dims, false, between(1, 4)))
        }
        _ => ("dragonfly+", dragonfly(between(3, 9), between(2, 8), between(2, 8), between(1, 8))),
    }
}

#[test]
#[ignore = "prints how often harmed fabrics are recognised"]
fn harmed_fabrics_are_recognised() {
    let mut counts: BTreeMap<(&str, usize), [usize; 5]> = BTreeMap::new();
    for seed in 0..2000 {
        let mut random = Random(seed);
        let (name, mut build) = any(&mut random);
        let whole = classify(&build.fabric);
        let percent = random.below(6);
        harm(&mut build.fabric, percent, &mut random);
        let found = classify(&build.fabric);
        let same = match (&whole.kind.value, &found.kind.value) {
            (Kind::FatTree { levels: a, .. }, Kind::FatTree { levels: b, .. }) => a == b,
            (a, b) => a == b,
        };
        let right = same && whole.rails.value == found.rails.value;
        // The rail of a leaf switch, by any port of it in the whole fabric.
        let truth: BTreeMap<usize, Option<Place>> = {
            let (_, again) = any(&mut Random(seed));
            let ports = again.fabric.ports.iter().zip(&whole.places);
            ports.filter_map(|(port, place)| Some((port.attached?.0, place.0))).collect()
        };
        let expected: Vec<Option<Place>> = build
            .fabric
            .ports
            .iter()
            .map(|port| port.attached.and_then(|(leaf, _)| truth[&leaf]))
            .collect();
        let placed: Vec<Option<Place>> = found.places.iter().map(|(place, _)| *place).collect();
        let members = labels(&expected) == labels(&placed);
        let wrong = labels(&expected)
            .iter()
            .zip(labels(&placed))
            .zip(&found.places)
            .any(|((a, b), (_, certainty))| *a != b && *certainty == Certain);
        let sure = found.places.iter().filter(|(_, certainty)| *certainty == Certain).count();
        let count = counts.entry((name, percent)).or_default();
        count[0] += 1;
        count[1] += usize::from(right);
        count[2] += usize::from(members);
        count[3] += usize::from(wrong || (!right && found.kind.certainty == Certain));
        count[4] += sure * 100 / found.places.len().max(1);
        if !right || wrong {
            println!(
                "seed {seed} {name} {percent}%: {:?} -> {:?} {:?} {} members {members} wrong {wrong}",
                whole.kind.value, found.kind.value, found.kind.certainty, found.rails.value
            );
        }
    }
    for ((name, percent), [all, right, members, wrong, sure]) in counts {
        println!(
            "{name} {percent} %: {all}, kind {right}, rails {members}, wrong {wrong}, sure {}",
            sure / all
        );
    }
}
