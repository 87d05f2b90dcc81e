//! Proves that `grade` accepts the truth and notices each kind of error. The answers are made from
//! the truth, and then spoilt in one place.

use std::collections::BTreeMap;

use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::fabric::{Classification, HostPlace, Kind, Place, Ratio};

use crate::accuracy::run;
use crate::equivalent::{Accepted, Factor};
use crate::grade::{Mark, grade};
use crate::truth::{Case, PortTruth};

fn certain<T>(value: T) -> Finding<T> {
    Finding { value, certainty: Certainty::Certain, because: String::new() }
}

fn kind(accepted: &Accepted) -> Kind {
    let sizes = |factors: &[Factor], wanted: fn(&Factor) -> Option<usize>| -> Option<Vec<u32>> {
        factors.iter().map(|f| wanted(f).map(|n| u32::try_from(n).unwrap())).collect()
    };
    match accepted {
        Accepted::Single => Kind::SingleSwitch,
        Accepted::RailOptimized => Kind::RailOptimized,
        Accepted::RailOnly => Kind::RailOnly,
        Accepted::FatTree { levels, ratio } => {
            let ratio = f64::midpoint(ratio[0], ratio[1]) * 1e6;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let oversubscription = Ratio(ratio as u64, 1_000_000);
            Kind::FatTree { levels: *levels, oversubscription }
        }
        Accepted::DragonflyPlus => Kind::DragonflyPlus,
        Accepted::Other => Kind::Other { levels: 1 },
        Accepted::Product(factors) => {
            let mesh = |f: &Factor| if let Factor::Mesh(n) = f { Some(*n) } else { None };
            let ring = |f: &Factor| match f {
                Factor::Ring(n) | Factor::Mesh(n @ 2..=3) => Some(*n),
                Factor::Mesh(_) => None,
            };
            match sizes(factors, mesh) {
                Some(dims) => Kind::HyperX { dims },
                None => Kind::Torus { dims: sizes(factors, ring).unwrap() },
            }
        }
    }
}

/// The truth as the answer of a perfect classifier.
fn oracle(case: &Case) -> Classification {
    let truth = &case.truth;
    let place = |port: &PortTruth| match port {
        PortTruth::In(_, label) if truth.has_rails => {
            let rail = u16::try_from(label.rail.unwrap_or(0)).unwrap();
            let place = Place { rail: 15 - rail, plane: u8::try_from(label.plane).unwrap() };
            (Some(place), Certainty::Certain)
        }
        _ => (None, Certainty::Unknown),
    };
    let host = |(name, group): (&String, &usize)| HostPlace {
        host: name.clone(),
        pod: 0,
        group: u32::try_from(*group).unwrap(),
        order: 0,
    };
    let subnets = truth.subnet_of.iter();
    Classification {
        kind: certain(kind(&truth.kinds[0])),
        rails: certain(u16::try_from(truth.rails[0]).unwrap()),
        planes: certain(u8::try_from(truth.planes[0]).unwrap()),
        subnets: certain(u32::try_from(*truth.subnets.start()).unwrap()),
        places: truth.ports.iter().map(place).collect(),
        subnet_of: subnets.map(|part| part.map(|part| u32::try_from(part).unwrap())).collect(),
        hosts: truth.groups.iter().map(host).collect(),
        crosses: certain(truth.crosses.unwrap_or(true)),
        oddities: Vec::new(),
    }
}

const SEEDS: std::ops::Range<u64> = 1..221;

#[test]
fn the_truth_is_accepted() {
    let table = run(SEEDS, |case, _| oracle(case));
    println!("{table}\n{}", table.examples(5));
    assert_eq!((table.right(), table.lies()), (table.cases(), 0));
    assert_eq!(table.groups()[0], table.groups()[1]);
}

/// Cases with rails.
fn railed() -> impl Iterator<Item = Case> {
    SEEDS.map(Case::draw).filter(|case| case.truth.has_rails)
}

/// The first ports of two labels of one cluster.
fn two_labels(case: &Case) -> Option<[usize; 2]> {
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    let label = |port: usize| match case.truth.ports[port] {
        PortTruth::In(cluster, label) => Some((cluster, label)),
        _ => None,
    };
    (0..case.truth.ports.len()).find_map(|port| {
        let (cluster, own) = label(port)?;
        let other = *first.entry(cluster).or_insert(port);
        (label(other)?.1 != own).then_some([other, port])
    })
}

#[test]
fn a_port_on_the_wrong_rail_is_noticed() {
    for case in railed() {
        let mut answer = oracle(&case);
        // A label with one port has no majority.
        let Some([a, b]) = two_labels(&case).filter(|_| case.design.hosts >= 8) else { continue };
        answer.places[a].0 = answer.places[b].0;
        assert_eq!(grade(&case, &answer).members, Mark::WrongCertain, "seed {}", case.seed);
        answer.places[a].1 = Certainty::Likely;
        assert_eq!(grade(&case, &answer).members, Mark::WrongUnsure, "seed {}", case.seed);
        answer.places[a] = (None, Certainty::Unknown);
        assert_eq!(grade(&case, &answer).members, Mark::Unknown, "seed {}", case.seed);
    }
}

#[test]
fn merged_rails_are_noticed() {
    for case in railed() {
        let mut answer = oracle(&case);
        for (place, _) in &mut answer.places {
            *place = place.map(|place| Place { rail: place.rail / 2, ..place });
        }
        assert_eq!(grade(&case, &answer).members, Mark::WrongCertain, "seed {}", case.seed);
    }
}

#[test]
fn a_wrong_kind_is_noticed() {
    for case in SEEDS.map(Case::draw) {
        let mut answer = oracle(&case);
        let is_other = case.truth.kinds.contains(&Accepted::Other);
        answer.kind.value = if is_other { Kind::SingleSwitch } else { Kind::Other { levels: 2 } };
        assert_eq!(grade(&case, &answer).kind, Mark::WrongCertain, "seed {}", case.seed);
        answer.kind.certainty = Certainty::Unknown;
        assert_eq!(grade(&case, &answer).kind, Mark::Unknown, "seed {}", case.seed);
    }
}

#[test]
fn wrong_numbers_are_noticed() {
    for case in SEEDS.map(Case::draw) {
        let spoil: [fn(&mut Classification); 4] = [
            |answer| answer.rails.value += 40,
            |answer| answer.planes.value += 7,
            |answer| answer.subnets.value += 100_000,
            |answer| *answer.subnet_of.iter_mut().flatten().next().unwrap() += 100_000,
        ];
        for spoil in spoil {
            let mut answer = oracle(&case);
            spoil(&mut answer);
            assert!(grade(&case, &answer).is_lie(), "seed {}", case.seed);
        }
        let mut answer = oracle(&case);
        answer.crosses.value = !answer.crosses.value;
        assert_eq!(grade(&case, &answer).is_lie(), case.truth.has_rails, "seed {}", case.seed);
    }
}

#[test]
fn hosts_in_the_wrong_group_are_noticed() {
    for case in SEEDS.map(Case::draw).filter(|case| case.truth.groups.len() > 1) {
        let mut answer = oracle(&case);
        let group = answer.hosts[0].group;
        match answer.hosts.iter().position(|host| host.group != group) {
            Some(other) => answer.hosts[other].group = group,
            None => answer.hosts[0].group += 1,
        }
        assert_eq!(grade(&case, &answer).groups, Some(false), "seed {}", case.seed);
    }
}

#[test]
fn a_seed_gives_one_fabric_of_the_promised_size() {
    for seed in SEEDS {
        let case = Case::draw(seed);
        assert_eq!(case.fabric, Case::draw(seed).fabric, "seed {seed}");
        let design = &case.design;
        assert!((2..=512).contains(&design.hosts), "seed {seed}");
        assert!((1..=16).contains(&(design.nics + design.storage_nics)), "seed {seed}");
        assert!((1..=4).contains(&design.planes), "seed {seed}");
        let fabric = &case.fabric;
        let cables = case.fabric.cables.len() + case.fabric.ports.len();
        assert!(case.damage.cables * 20 <= cables + cables / 10, "seed {seed}");
        // Every port of a switch has one cable.
        let ends = fabric.cables.iter().flat_map(|cable| cable.ends);
        let mut ends: Vec<_> = ends.chain(fabric.ports.iter().filter_map(|p| p.attached)).collect();
        let count = ends.len();
        ends.sort_unstable();
        ends.dedup();
        assert_eq!(ends.len(), count, "seed {seed}");
        assert!(ends.iter().all(|(switch, port)| *switch < fabric.switches.len() && *port > 0));
    }
}
