//! Agreements from evidence, the same on every rank.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ringfold_harness::Random;

use super::*;
use crate::evidence::{Attached, Evidence, HostPath, PortEvidence};
use crate::fabric::Place;
use crate::machine::Network;

const fn place(rail: u16) -> Place {
    Place { rail, plane: 0 }
}

const fn subnet(network: u64, address: u64) -> Attached {
    Attached::Subnet { network, address }
}

const fn declared(rail: u16) -> Attached {
    Attached::Rail(place(rail), Source::Declared)
}

const fn site(rail: u16) -> Attached {
    Attached::Rail(place(rail), Source::Site)
}

/// A host for each list of ports with these attachments, and a rank on each host.
fn known(hosts: &[&[&[Attached]]]) -> Known {
    let port = |(at, attached): (usize, &&[Attached])| PortEvidence {
        name: format!("mlx5_{at}:1"),
        attached: attached.to_vec(),
        ..PortEvidence::default()
    };
    let evidence = (0..).zip(hosts).map(|(host, ports)| {
        let ports = ports.iter().enumerate().map(port).collect();
        HostEvidence { host, evidence: Evidence { ports, ..Evidence::default() } }
    });
    Known {
        machines: (0..).take(hosts.len()).collect(),
        evidence: evidence.collect(),
        ranks: (0..)
            .take(hosts.len())
            .map(|host| RankEvidence { host, evidence: Some(host), preferred: 1 })
            .collect(),
    }
}

fn rails(known: &Known) -> Vec<Vec<Option<u16>>> {
    let labels = agree(known).labels;
    labels.iter().map(|of| of.iter().map(|it| it.map(|place| place.rail)).collect()).collect()
}

/// Groups around a host, its number, and the source.
type Path<'a> = Option<(&'a [&'a str], Option<u32>, Source)>;

fn at_paths(paths: &[Path<'_>]) -> Known {
    let mut known = known(&vec![&[][..]; paths.len()]);
    for (word, path) in known.evidence.iter_mut().zip(paths) {
        word.evidence.path = path.map(|(groups, order, source)| HostPath {
            groups: groups.iter().map(|it| (*it).to_owned()).collect(),
            order,
            source,
        });
    }
    known
}

fn order_of(agreement: &Agreement) -> Vec<(u32, Option<u32>, Option<u32>)> {
    agreement.hosts.value.iter().map(|host| (host.host, host.group, host.pod)).collect()
}

#[test]
fn the_most_trusted_source_wins_and_says_so() {
    let hosts = known(&[&[&[declared(1), site(0)], &[site(1)]], &[&[site(0)], &[site(1)]]]);
    assert_eq!(rails(&hosts), [[Some(1), Some(1)], [Some(0), Some(1)]]);
    let ignored = agree(&hosts).ignored;
    let what = "mlx5_0:1 of host 0: the user overrules the site file";
    assert_eq!(ignored, [what]);
}

#[test]
fn contradictory_evidence_makes_nothing_certain() {
    let twice = known(&[&[&[declared(1), declared(0), site(0)]], &[&[site(0)]]]);
    assert_eq!(rails(&twice), [[None], [Some(0)]]);
    assert!(agree(&twice).ignored[0].starts_with("mlx5_0:1 of host 0: "));
    // A bridge of containers has the same address on every host.
    let bridge = known(&[&[&[subnet(7, 1)], &[subnet(8, 1)]], &[&[subnet(7, 1)], &[subnet(8, 2)]]]);
    assert_eq!(rails(&bridge), [[None, None], [None, None]]);
    assert!(agree(&bridge).ignored[0].contains("have the same address"));
    let mut differ = known(&[&[], &[]]);
    differ.evidence[0].evidence.crosses = Some(true);
    assert_eq!(agree(&differ).crosses, Some(true));
    differ.evidence[1].evidence.crosses = Some(false);
    assert_eq!(agree(&differ).crosses, None);
}

#[test]
fn subnets_are_rails_where_each_host_has_one_port_in_each() {
    let two: &[&[Attached]] = &[&[subnet(9, 1)], &[subnet(3, 1)]];
    let other: &[&[Attached]] = &[&[subnet(9, 2)], &[subnet(3, 2)]];
    let swapped: &[&[Attached]] = &[&[subnet(3, 2)], &[subnet(9, 2)]];
    let partial: &[&[Attached]] = &[&[subnet(3, 3)]];
    assert_eq!(
        rails(&known(&[two, other])),
        [[Some(1), Some(0)], [Some(1), Some(0)]].map(|it| {
            // Numbers follow the ports' positions, not the subnets' digests.
            [it[1], it[0]]
        })
    );
    let mixed = rails(&known(&[two, swapped, partial]));
    assert_eq!((mixed[0][0], mixed[0][1]), (mixed[1][1], mixed[1][0]));
    assert_eq!(mixed[2][0], mixed[0][1]);
    let flat: &[&[Attached]] = &[&[subnet(9, 5)], &[subnet(9, 6)]];
    let one: &[&[Attached]] = &[&[subnet(9, 7)], &[]];
    for hosts in [known(&[flat, two, other]), known(&[one, two]), known(&[two])] {
        let found = rails(&hosts);
        assert!(found.iter().flatten().all(Option::is_none), "{found:?}");
    }
}

#[test]
fn switches_are_rails_within_one_group_of_hosts() {
    use Attached::Switch;
    let (a, b): (&[&[Attached]], &[&[Attached]]) =
        (&[&[Switch(1)], &[Switch(2)]], &[&[Switch(3)], &[Switch(4)]]);
    assert_eq!(rails(&known(&[a, a])), [[Some(0), Some(1)], [Some(0), Some(1)]]);
    let groups = agree(&known(&[a, b, a, b]));
    assert!(groups.labels.iter().flatten().all(Option::is_none), "{:?}", groups.labels);
    assert!(groups.ignored.iter().any(|it| it.contains("2 groups")), "{:?}", groups.ignored);
    let order = order_of(&groups);
    assert_eq!(
        order,
        [(0, Some(0), None), (2, Some(0), None), (1, Some(1), None), (3, Some(1), None)]
    );
    // One declared host in each group names the whole group.
    let named: &[&[Attached]] = &[&[Switch(1), declared(5)], &[Switch(2), declared(4)]];
    let also: &[&[Attached]] = &[&[Switch(3), declared(5)], &[Switch(4), declared(4)]];
    let found = rails(&known(&[a, b, named, also]));
    assert!(found.iter().all(|of| *of == [Some(5), Some(4)]), "{found:?}");
}

/// Each leaf has subnets of its own, and one more network has all hosts.
#[test]
fn networks_without_a_common_host_are_no_rails() {
    let host = |group: u64, last: u64| {
        let of = |rail: u64| vec![subnet(group * 8 + rail, last)];
        (0..8).map(of).chain([vec![subnet(99, last)]]).collect::<Vec<_>>()
    };
    let hosts: Vec<Vec<Vec<Attached>>> = (0..4).map(|at| host(at / 2, at)).collect();
    let ports: Vec<Vec<&[Attached]>> =
        hosts.iter().map(|host| host.iter().map(Vec::as_slice).collect()).collect();
    let all: Vec<&[&[Attached]]> = ports.iter().map(Vec::as_slice).collect();
    let found = agree(&known(&all));
    assert!(found.labels.iter().flatten().all(Option::is_none), "{:?}", found.labels);
    assert!(found.ignored.iter().any(|it| it.contains("no host in common")), "{:?}", found.ignored);
    assert!(rails(&known(&all[..2])).iter().flatten().all(Option::is_some), "one leaf");
}

#[test]
fn a_network_that_is_two_rails_names_none() {
    let hosts: &[&[&[Attached]]] = &[
        &[&[declared(0), subnet(7, 1)], &[declared(2), subnet(8, 1)], &[declared(3), subnet(9, 1)]],
        &[&[declared(1), subnet(7, 2)], &[subnet(8, 2)]],
        &[&[subnet(7, 3)], &[subnet(8, 3)], &[subnet(9, 3)]],
    ];
    let found = rails(&known(hosts));
    assert_eq!(found[1], [Some(1), Some(2)]);
    assert_eq!(found[2], [None, Some(2), Some(3)]);
}

#[test]
fn two_ports_of_a_host_get_no_place_in_common() {
    let hosts: &[&[&[Attached]]] = &[
        &[&[declared(0), subnet(7, 1)], &[declared(1), subnet(8, 1)]],
        &[&[declared(0), subnet(9, 1)], &[subnet(7, 2)], &[subnet(8, 2)]],
        &[&[subnet(7, 3)], &[subnet(9, 3)], &[subnet(8, 3)]],
    ];
    let found = rails(&known(hosts));
    assert_eq!(found[1], [Some(0), None, Some(1)], "one port of the host is there");
    assert_eq!(found[2], [None, None, Some(1)], "two ports could be there");
}

#[test]
fn hosts_are_in_the_order_of_the_most_trusted_source() {
    let pods = |pod, leaf| (vec![pod, leaf], None, Source::Slurm);
    let paths = [pods("p10", "a"), pods("p9", "b"), pods("p10", "a"), pods("p9", "a")];
    let paths: Vec<_> = paths.iter().map(|(at, n, source)| Some((&at[..], *n, *source))).collect();
    let agreed = agree(&at_paths(&paths));
    assert_eq!(agreed.hosts.certainty, Certainty::Certain);
    let places = [
        (3, Some(0), Some(0)),
        (1, Some(1), Some(0)),
        (0, Some(2), Some(1)),
        (2, Some(2), Some(1)),
    ];
    assert_eq!(order_of(&agreed), places);
    let site = [Some((&["g"][..], Some(4), Source::Site)), paths[0], None, None];
    let site = [site[0], site[1], site[2], Some((&["g"][..], Some(3), Source::Site))];
    let agreed = agree(&at_paths(&site));
    let places = [(3, Some(0), None), (0, Some(0), None), (1, None, None), (2, None, None)];
    assert_eq!(order_of(&agreed), places);
    assert_eq!(agreed.ignored, ["the site file does not place 2 of 4 hosts"]);
    // Ranks of one host disagree, so its place is not certain.
    let mut differ = at_paths(&paths);
    let mut other = differ.evidence[3].clone();
    other.evidence.path = differ.evidence[0].evidence.path.clone();
    differ.evidence.push(other);
    let places =
        [(1, Some(0), Some(0)), (0, Some(1), Some(1)), (2, Some(1), Some(1)), (3, None, None)];
    assert_eq!(order_of(&agree(&differ)), places);
}

#[test]
fn nothing_known_is_the_order_of_ranks() {
    for known in [Known::default(), at_paths(&[None, None, None])] {
        let agreed = agree(&known);
        assert_eq!(agreed.hosts.certainty, Certainty::Unknown);
        assert_eq!(agreed.rails.certainty, Certainty::Unknown);
        let hosts: Vec<u32> = agreed.hosts.value.iter().map(|host| host.host).collect();
        assert_eq!(hosts, (0..).take(known.machines.len()).collect::<Vec<_>>());
        assert_eq!(agreed.reach(&known, |_| true), None);
        assert_eq!(agreed.paths(), None);
    }
}

#[test]
fn ranks_reach_the_rails_of_their_ports() {
    let mut hosts = known(&[&[&[declared(7)], &[declared(3)], &[]], &[&[], &[declared(7)]]]);
    hosts.ranks[0].preferred = 0b010;
    hosts.ranks.push(RankEvidence { host: 1, evidence: None, preferred: 1 });
    let sets = |known: &Known| {
        let found = agree(known).reach(known, |network| network == Network::InfiniBand).unwrap();
        let texts = found.iter().map(|it| format!("{}|{}", it.reaches, it.prefers));
        texts.collect::<Vec<_>>()
    };
    assert_eq!(sets(&hosts), ["3,7|3", "7|", "|"]);
    assert_eq!(agree(&hosts).reach(&hosts, |network| network == Network::Tcp), None);
    // If a set cannot hold the numbers of rails, it uses their positions in the list of rails.
    hosts.evidence[0].evidence.ports[0].attached = vec![declared(900)];
    assert_eq!(sets(&hosts), ["0,2|0", "1|", "|"]);
}

#[test]
fn unknown_hosts_get_groups_of_their_own() {
    let at = |group| Some((group, None, Source::Site));
    let known = at_paths(&[None, at(&["p", "b"][..]), at(&["p", "a"]), None]);
    let paths = agree(&known).paths().unwrap();
    let orders: Vec<u32> = paths.iter().map(|path| path.order).collect();
    assert_eq!(orders, [2, 1, 0, 3]);
    let groups: BTreeSet<u32> = paths.iter().map(|path| path.group).collect();
    let pods: BTreeSet<u32> = paths.iter().map(|path| path.pod).collect();
    assert_eq!((groups.len(), pods.len()), (4, 3), "{paths:?}");
    assert_eq!(paths[1].pod, paths[2].pod);
    let flat = agree(&at_paths(&[at(&["a"]), at(&["b"])])).paths().unwrap();
    assert_eq!(flat[0].pod, flat[1].pod, "without pods all hosts are in one");
}

/// A fabric with rails, true evidence of its hosts, and the true rail of each port.
fn world(random: &mut Random) -> (Known, Vec<Vec<u16>>) {
    let [hosts, count, groups] = [1 + random.below(9), 1 + random.below(4), 1 + random.below(3)];
    let [named, switched, netted] = [0, 1, 2].map(|_| [0, 30, 70, 100][random.below(4)]);
    let (is_flat, per_group, is_tcp) = (random.chance(15), random.chance(30), random.chance(20));
    // A network of all hosts beside the rails, for storage or the front end.
    let beside = usize::from(random.chance(30));
    let (mut truth, mut words) = (Vec::new(), Vec::new());
    for host in 0..hosts {
        let group = host % groups;
        let mut evidence = Evidence::default();
        let mut true_rails = Vec::new();
        for rail in random.order(count + beside).into_iter().skip(usize::from(random.chance(20))) {
            let group = if rail < count { group } else { 0 };
            let mut attached = Vec::new();
            let number = u16::try_from(rail).unwrap();
            if random.chance(named) {
                let source = [Source::Declared, Source::Site, Source::Fabric][random.below(3)];
                attached.push(Attached::Rail(place(number), source));
            }
            if random.chance(switched) {
                attached.push(Attached::Switch((group * 100 + rail) as u64));
            }
            if random.chance(netted) {
                let network =
                    if is_flat { 0 } else { rail + if per_group { group * 100 } else { 0 } };
                attached.push(subnet(network as u64, (host * 100 + rail) as u64));
            }
            let network = if is_tcp { Network::Tcp } else { Network::Roce };
            let name = format!("port{rail}");
            evidence.ports.push(PortEvidence { name, network, gbps: 0, attached });
            true_rails.push(number);
        }
        words.push(HostEvidence { host: u32::try_from(host).unwrap(), evidence });
        truth.push(true_rails);
    }
    let known = Known { machines: vec![0; hosts], evidence: words, ranks: Vec::new() };
    (known, truth)
}

/// Equal labels are one rail, and different labels are two.
fn assert_true(known: &Known, truth: &[Vec<u16>]) {
    let found = rails(known);
    let pairs = found.iter().flatten().zip(truth.iter().flatten());
    let (mut of_label, mut of_rail) = (BTreeMap::new(), BTreeMap::new());
    for (label, rail) in pairs.filter_map(|(label, rail)| Some(((*label)?, *rail))) {
        assert_eq!(*of_label.entry(label).or_insert(rail), rail, "{known:#?}\n{found:?}");
        assert_eq!(*of_rail.entry(rail).or_insert(label), label, "{known:#?}\n{found:?}");
    }
}

#[test]
fn certain_labels_are_true() {
    let mut labelled = 0;
    for seed in 0..4000 {
        let (known, truth) = world(&mut Random::new(seed));
        assert_true(&known, &truth);
        labelled += rails(&known).iter().flatten().flatten().count();
    }
    assert!(labelled > 4000, "only {labelled} labels");
}

/// Evidence in another order, of hosts with other numbers, gives the same places.
#[test]
fn the_order_of_evidence_makes_no_difference() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let (mut known, _) = world(&mut random);
        if random.chance(50) {
            contradict(&mut known, &mut random);
        }
        if random.chance(50) {
            let mut turned = known.evidence[random.below(known.evidence.len())].clone();
            turned.evidence.ports.reverse();
            known.evidence.push(turned);
        }
        let before = agree(&known);
        let order = random.order(known.evidence.len());
        let numbers = random.order(known.machines.len());
        let moved: Vec<HostEvidence> = order
            .iter()
            .map(|at| HostEvidence {
                host: u32::try_from(numbers[known.evidence[*at].host as usize]).unwrap(),
                evidence: known.evidence[*at].evidence.clone(),
            })
            .collect();
        let after = agree(&Known { evidence: moved, ..known.clone() });
        let expected: Vec<_> = order.iter().map(|at| before.labels[*at].clone()).collect();
        assert_eq!(after.labels, expected, "seed {seed}: {known:#?}");
        assert_eq!((after.rails, after.crosses), (before.rails, before.crosses), "seed {seed}");
    }
}

/// Adds a second evidence of a host that contradicts the first about one port.
fn contradict(known: &mut Known, random: &mut Random) -> Option<(usize, usize)> {
    let at = random.below(known.evidence.len());
    let mut word = known.evidence[at].clone();
    let port = random.below(word.evidence.ports.len().max(1));
    let attached = &mut word.evidence.ports.get_mut(port)?.attached;
    for it in attached.iter_mut() {
        match it {
            Attached::Rail(place, _) => place.rail += 50,
            Attached::Switch(switch) => *switch += 5000,
            Attached::Subnet { network, .. } => *network += 5000,
        }
    }
    (!attached.is_empty()).then_some(())?;
    known.evidence.push(word);
    Some((at, port))
}

#[test]
fn a_port_of_which_ranks_differ_has_no_place() {
    let mut contradicted = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let (mut known, _) = world(&mut random);
        if let Some((at, port)) = contradict(&mut known, &mut random) {
            contradicted += 1;
            assert_eq!(rails(&known)[at][port], None, "seed {seed}: {known:#?}");
        }
    }
    assert!(contradicted > 500, "{contradicted}");
}

/// 65,536 ranks, eight on each host, with 8 ports that three sources describe.
fn large() -> Known {
    let ports = |host: u64| {
        let port = |rail: u64| PortEvidence {
            name: format!("mlx5_{rail}:1"),
            attached: vec![subnet(rail, host), Attached::Switch(host / 32 * 8 + rail), site(0)],
            ..PortEvidence::default()
        };
        let mut ports: Vec<PortEvidence> = (0..8).map(port).collect();
        (0..).zip(&mut ports).for_each(|(rail, port)| port.attached[2] = site(rail));
        ports
    };
    let evidence = (0..8192_u32).map(|host| HostEvidence {
        host,
        evidence: Evidence {
            path: Some(HostPath {
                groups: vec![format!("p{}", host % 7), format!("l{}", host % 256)],
                order: None,
                source: Source::Site,
            }),
            crosses: Some(true),
            ports: ports(u64::from(host)),
        },
    });
    let rank = |rank: u32| RankEvidence {
        host: rank / 8,
        evidence: Some(rank / 8),
        preferred: 1 << (rank % 8),
    };
    Known {
        machines: (0..8192).collect(),
        evidence: evidence.collect(),
        ranks: (0..65_536).map(rank).collect(),
    }
}

#[test]
fn the_largest_job_agrees() {
    let known = large();
    let began = Instant::now();
    let agreed = agree(&known);
    let (reach, paths) = (agreed.reach(&known, |_| true).unwrap(), agreed.paths().unwrap());
    let took = began.elapsed();
    assert_eq!(agreed.rails.value.len(), 8);
    assert!(reach.iter().all(|it| it.reaches.places().count() == 8));
    assert!(reach.iter().all(|it| it.prefers.places().count() == 1));
    assert_eq!(paths.len(), 8192);
    println!("65536 ranks agree in {took:?}");
}
