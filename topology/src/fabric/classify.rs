//! Classifies a fabric from the findings of the other modules.
//!
//! Few exceptions do not change an answer. If a graph has another interpretation, the answer is
//! likely instead of certain. Fabrics that mix kinds are unknown.

use std::collections::BTreeMap;

use super::graph::Graph;
use super::groups::Groups;
use super::levels::Levels;
use super::nets::Nets;
use super::oddities::{self, Parts};
use super::rails::Rails;
use super::sets::mode;
use super::shape::{Capacity, Shape, ratio, shape};
use super::{Classification, Fabric, Kind, Oddity, Place, order};
use crate::certainty::{Certainty, Finding};

/// Number of networks that are tried as the one that others are like.
const KINDS_TRIED: usize = 64;

/// How many times larger the networks of unknown kind may be than the others.
const UNRECOGNISED_MAX: usize = 3;

/// Classifies a fabric. Takes time and memory in proportion to the fabric.
///
/// An impossible fabric, such as one with two switches of one identifier, is unknown.
#[must_use]
pub fn classify(fabric: &Fabric) -> Classification {
    let mut odd = Vec::new();
    let graph = Graph::of(fabric, &mut odd);
    if graph.is_broken {
        return unknown(fabric, "two switches have the same identifier", odd);
    }
    if graph.leaf_of.iter().all(Option::is_none) {
        return unknown(fabric, "no port of a host is on a switch", odd);
    }
    let levels = Levels::of(&graph);
    let groups = Groups::of(&graph);
    let mut nets = Nets::of(&graph, &levels, &groups);
    let shapes = shapes(&graph, &levels, &nets);
    nets.keep_rail_only(|net| {
        let kind = shapes[net].as_ref().map(|shape| &shape.kind);
        matches!(kind, Some(Kind::SingleSwitch | Kind::FatTree { .. }))
    });
    let rails = Rails::of(&graph, &levels, &groups, &nets);
    let parts =
        Parts { graph: &graph, levels: &levels, groups: &groups, nets: &nets, rails: &rails };
    odd.extend(oddities::find(&parts));
    let large = oddities::too_large(&graph, &nets);
    let subnets = subnets(&parts, large.is_empty());
    odd.extend(large);
    let kind = kind(&parts, &shapes, odd.is_empty());
    let is_unknown = kind.certainty == Certainty::Unknown;
    let likely_if =
        |is_unsure: bool| if is_unsure { Certainty::Likely } else { Certainty::Certain };
    let has_mixed_numbers = has_mixed_numbers(&parts);
    Classification {
        kind,
        rails: at_most(rail_count(&parts), likely_if(is_unknown)),
        planes: at_most(plane_count(&parts), likely_if(is_unknown || has_mixed_numbers)),
        subnets,
        places: places(&parts),
        subnet_of: subnet_of(&parts),
        hosts: order::hosts(&graph, &levels, &groups, &nets, &shapes),
        crosses: crosses(&parts),
        oddities: odd,
    }
}

/// A classification without an answer, for this reason.
fn unknown(fabric: &Fabric, because: &str, oddities: Vec<Oddity>) -> Classification {
    Classification {
        kind: finding(Kind::Other { levels: 0 }, Certainty::Unknown, because),
        rails: finding(0, Certainty::Unknown, because),
        planes: finding(1, Certainty::Unknown, because),
        subnets: finding(0, Certainty::Unknown, because),
        places: vec![(None, Certainty::Unknown); fabric.ports.len()],
        subnet_of: vec![None; fabric.ports.len()],
        hosts: Vec::new(),
        crosses: finding(false, Certainty::Unknown, because),
        oddities,
    }
}

fn finding<T>(value: T, certainty: Certainty, because: &str) -> Finding<T> {
    Finding { value, certainty, because: because.to_owned() }
}

/// The finding, with this certainty at most.
fn at_most<T>(finding: Finding<T>, certainty: Certainty) -> Finding<T> {
    Finding { certainty: finding.certainty.min(certainty), ..finding }
}

/// By network: its shape, if it belongs to the fabric.
fn shapes(graph: &Graph<'_>, levels: &Levels, nets: &Nets) -> Vec<Option<Shape>> {
    let mut switches = vec![Vec::new(); nets.list.len()];
    for (switch, net) in nets.of.iter().enumerate() {
        net.iter().for_each(|net| switches[*net].push(switch));
    }
    let shape = |(net, switches): (usize, &Vec<usize>)| {
        nets.plane(net).map(|_| shape(graph, levels, &nets.list[net], switches))
    };
    switches.iter().enumerate().map(shape).collect()
}

/// The kind of the fabric, from those of all its networks.
fn kind(parts: &Parts<'_>, shapes: &[Option<Shape>], is_whole: bool) -> Finding<Kind> {
    let Parts { nets, rails, graph, .. } = parts;
    if graph.fabric.is_partial {
        let because = "cables between switches are unknown";
        return finding(Kind::Other { levels: 1 }, Certainty::Unknown, because);
    }
    let shapes: Vec<(&Shape, usize)> = (shapes.iter().zip(&nets.list))
        .filter_map(|(shape, net)| Some((shape.as_ref()?, net.ports)))
        .collect();
    // A network of unknown kind contradicts no other.
    let is_known = |shape: &Shape| !matches!(shape.kind, Kind::Other { .. });
    let alike = |one: &Shape| {
        let alike = shapes.iter().filter(|(other, _)| are_alike(&one.kind, &other.kind));
        alike.map(|(_, ports)| ports).sum::<usize>()
    };
    let tried = shapes.iter().take(KINDS_TRIED).map(|(shape, _)| *shape);
    let Some(first) = tried.rev().max_by_key(|shape| (is_known(shape), alike(shape))) else {
        return finding(Kind::Other { levels: 0 }, Certainty::Unknown, "there are no networks");
    };
    let same = alike(first);
    let ports = |is_of: bool| {
        let of = shapes.iter().filter(|(shape, _)| is_known(shape) == is_of);
        of.map(|(_, ports)| ports).sum::<usize>()
    };
    let others = ports(true) + ports(false) - same;
    let contrary = if is_known(first) { ports(true) - same } else { others };
    if contrary * 4 > same * 3 || others > same * UNRECOGNISED_MAX {
        let because = "networks of several kinds carry the hosts";
        return finding(
            Kind::Other { levels: levels_of(&first.kind) },
            Certainty::Unknown,
            because,
        );
    }
    let mine = || shapes.iter().filter(|(shape, _)| are_alike(&shape.kind, &first.kind));
    let least = mine().map(|(shape, _)| shape.certainty).min();
    let mut certainty = least.unwrap_or_default();
    if others > 0 || nets.are_bridged || nets.is_ambiguous || !rails.is_regular {
        certainty = certainty.min(Certainty::Likely);
    }
    let is_rail_only = nets.main().next().is_some_and(|stack| stack.is_rail_only);
    match &first.kind {
        Kind::SingleSwitch | Kind::FatTree { .. } if is_rail_only => rail_only(nets, certainty),
        Kind::FatTree { .. } if rails.count > 0 => {
            let because = format!(
                "the ports of a host are on {} leaf switches that spine switches join",
                rails.count
            );
            finding(Kind::RailOptimized, certainty, &because)
        }
        Kind::Torus { .. } | Kind::HyperX { .. } if rails.count > 0 => {
            let because = "the ports of a host are on several switches of a grid";
            finding(Kind::Other { levels: 1 }, Certainty::Unknown, because)
        }
        Kind::FatTree { levels, .. } => {
            let total = mine().fold(Capacity::default(), |total, (shape, _)| Capacity {
                into: total.into + shape.capacity.into,
                up: total.up + shape.capacity.up,
            });
            let kind = Kind::FatTree { levels: *levels, oversubscription: ratio(total) };
            let certainty = if is_whole && !has_lost(parts) {
                certainty
            } else {
                certainty.min(Certainty::Likely)
            };
            finding(kind, certainty, &first.because)
        }
        other => finding(other.clone(), certainty, &first.because),
    }
}

/// Whether ports are down, or leaf switches lost their cables.
fn has_lost(parts: &Parts<'_>) -> bool {
    let Parts { graph, nets, .. } = parts;
    let is_down = |port: &usize| graph.fabric.ports[*port].attached.is_none();
    nets.list.iter().any(|net| nets.is_fragment(net))
        || graph.hosts.iter().any(|host| host.ports.iter().any(is_down))
}

/// The finding of a rail-only fabric.
fn rail_only(nets: &Nets, certainty: Certainty) -> Finding<Kind> {
    let is_evident = nets.main().all(|stack| stack.is_evident);
    let because = if is_evident {
        "hosts have a device in each of several equal networks, with a port in each plane"
    } else {
        "hosts have one port in each of several equal networks, which planes would have as well"
    };
    let certainty = if is_evident { certainty } else { certainty.min(Certainty::Likely) };
    finding(Kind::RailOnly, certainty, because)
}

/// Whether two networks are of one kind.
fn are_alike(a: &Kind, b: &Kind) -> bool {
    match (a, b) {
        (Kind::FatTree { levels: a, .. }, Kind::FatTree { levels: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

/// The levels of switches of a kind.
fn levels_of(kind: &Kind) -> u32 {
    match kind {
        Kind::FatTree { levels, .. } | Kind::Other { levels } => *levels,
        Kind::RailOptimized | Kind::DragonflyPlus => 2,
        _ => 1,
    }
}

fn rail_count(parts: &Parts<'_>) -> Finding<u16> {
    let Parts { rails, nets, graph, .. } = parts;
    let count = u16::try_from(rails.count).unwrap_or(u16::MAX);
    let is_evident = nets.main().all(|stack| stack.is_evident);
    let is_seen = !nets.are_bridged && !nets.is_ambiguous && !graph.fabric.is_partial;
    // These separated leaf switches may be all those of a rail.
    let cut_off = nets.list.iter().filter(|net| nets.is_fragment(net)).count();
    let is_sure = rails.is_regular && is_evident && is_seen && cut_off * 4 <= parts.groups.count;
    let certainty = if is_sure { Certainty::Certain } else { Certainty::Likely };
    let because = if count == 0 {
        "the ports that a host has in a plane share a leaf switch".to_owned()
    } else if rails.is_evident_from_switches {
        format!("the ports of a host are on {count} leaf switches, and cables tell their rails")
    } else {
        format!(
            "the ports of a host are on {count} leaf switches, and device names tell which leaf \
             switches of other groups carry the same rail"
        )
    };
    finding(count, certainty, &because)
}

fn plane_count(parts: &Parts<'_>) -> Finding<u8> {
    let Parts { nets, graph, .. } = parts;
    let mut stacks = nets.main();
    let first = stacks.next();
    let count = first.map_or(1, |stack| stack.planes);
    let is_evident = first.is_some_and(|stack| stack.is_evident)
        && stacks.all(|stack| stack.is_evident && stack.planes == count)
        && !nets.are_bridged
        && !nets.is_ambiguous
        && !graph.fabric.is_partial;
    let certainty = if is_evident { Certainty::Certain } else { Certainty::Likely };
    let because = match (count, is_evident) {
        (1, true) => "one network carries all ports of a host",
        (1, false) => "no device has ports in several networks",
        (_, true) => "ports of one device are in several equal networks",
        (_, false) => "equal networks are beside each other, each with several ports of a host",
    };
    finding(u8::try_from(count).unwrap_or(u8::MAX), certainty, because)
}

fn subnets(parts: &Parts<'_>, can_be: bool) -> Finding<u32> {
    let Parts { nets, graph, .. } = parts;
    let count = u32::try_from(nets.subnets).unwrap_or(u32::MAX);
    let is_odd = nets.list.iter().any(|net| nets.is_fragment(net)) || nets.are_bridged;
    let (certainty, because) = match (graph.fabric.is_partial, can_be, is_odd) {
        (true, ..) => (Certainty::Unknown, "cables between switches are unknown"),
        (_, false, _) => (Certainty::Unknown, "a subnet has more ports than InfiniBand allows"),
        (_, _, true) => (Certainty::Likely, "some cables between switches do not fit the others"),
        _ => (Certainty::Certain, "cables without routers join so many parts with hosts"),
    };
    finding(count, certainty, because)
}

fn crosses(parts: &Parts<'_>) -> Finding<bool> {
    let Parts { nets, rails, graph, .. } = parts;
    let is_rail_only = nets.main().any(|stack| stack.is_rail_only);
    let is_evident = nets.main().all(|stack| stack.is_evident);
    // A network beside rails may be two of them that a cable connects.
    let is_unsure = nets.is_ambiguous
        || (rails.count == 0 && !is_evident)
        || (is_rail_only && nets.has_outside());
    let certain = if is_unsure { Certainty::Likely } else { Certainty::Certain };
    if graph.fabric.is_partial {
        let because = "cables between switches are unknown";
        finding(false, Certainty::Unknown, because)
    } else if rails.count == 0 {
        finding(true, certain, "cables join all ports of a plane")
    } else if !is_rail_only {
        finding(true, certain, "cables join the leaf switches of all rails")
    } else if nets.are_bridged {
        let because = "only cables that do not fit the others join rails";
        finding(false, Certainty::Likely, because)
    } else {
        finding(false, certain, "no cable joins the networks of different rails")
    }
}

/// By port: its place.
fn places(parts: &Parts<'_>) -> Vec<(Option<Place>, Certainty)> {
    let Parts { graph, nets, rails, levels, .. } = parts;
    let label = |leaf: usize| {
        let plane = nets.plane(nets.of[leaf]?)?;
        rails.of[leaf].map(|(rail, certainty)| (Place { rail, plane }, certainty))
    };
    let lost = lost(parts, &|leaf| label(leaf).map(|(place, _)| place));
    let has_unlike_stacks =
        nets.main().count() > 1 && nets.main().any(|stack| stack.planes > 1 && !stack.is_evident);
    let is_misconnected = misconnected(parts);
    let is_unsure = nets.is_ambiguous
        || has_unlike_stacks
        || (rails.count == 0 && has_mixed_numbers(parts))
        || (nets.are_bridged && !(rails.is_sure && rails.count > 0))
        || (graph.fabric.is_partial
            && (rails.count == 0 || !rails.is_evident_from_switches || nets.has_others()));
    // A switch with far fewer ports than others may be above the leaf switches.
    let is_small = |leaf: usize| {
        let net = nets.of[leaf].map(|net| &nets.list[net]);
        net.is_some_and(|net| graph.ports_of[leaf].len() * 8 * net.leaves.len() <= net.ports)
    };
    let place = |leaf: usize| {
        let Some((place, certainty)) = label(leaf) else {
            return (lost.get(&leaf).copied(), Certainty::Likely);
        };
        let is_odd = levels.of[leaf] > 1 || is_unsure || is_misconnected[leaf] || is_small(leaf);
        let certainty = if is_odd { certainty.min(Certainty::Likely) } else { certainty };
        (Some(place), certainty)
    };
    let place = |leaf: &Option<usize>| leaf.map_or((None, Certainty::Unknown), place);
    graph.leaf_of.iter().map(place).collect()
}

/// Whether one network has ports with several numbers on their devices. It may be planes that
/// misplaced cables connect.
fn has_mixed_numbers(parts: &Parts<'_>) -> bool {
    let Parts { graph, nets, .. } = parts;
    nets.main().flat_map(|stack| &stack.nets).any(|net| {
        let leaves = || nets.list[*net].leaves.iter();
        let ports = leaves().flat_map(|leaf| &graph.ports_of[*leaf]);
        let mut numbers: Vec<u8> = ports.map(|port| graph.fabric.ports[*port].number).collect();
        numbers.sort_unstable();
        let runs = numbers.chunk_by(|a, b| a == b).map(<[_]>::len);
        runs.max().unwrap_or(0) * 4 < numbers.len() * 3
    })
}

/// By switch: whether it may have cables to the wrong one of several equal networks. That is a leaf
/// switch most of whose hosts have more ports in its network than other hosts.
fn misconnected(parts: &Parts<'_>) -> Vec<bool> {
    let Parts { graph, nets, .. } = parts;
    let is_beside = |net: usize| nets.main().any(|it| it.nets.len() > 1 && it.nets.contains(&net));
    let is_beside: Vec<bool> = (0..nets.list.len()).map(is_beside).collect();
    let mut hosts = vec![(0_usize, 0_usize); graph.links.len()];
    for host in 0..graph.hosts.len() {
        let leaves = graph.leaves(host);
        for (leaf, _) in &leaves {
            let Some(net) = nets.of[*leaf].filter(|net| is_beside[*net]) else { continue };
            let here = leaves.iter().filter(|(leaf, _)| nets.of[*leaf] == Some(net));
            let ports: usize = here.map(|(_, ports)| ports).sum();
            let (all, odd) = &mut hosts[*leaf];
            *all += 1;
            *odd += usize::from(ports > nets.list[net].ports_per_host);
        }
    }
    hosts.into_iter().map(|(all, odd)| odd * 2 > all).collect()
}

/// Places of leaf switches that have none, because they lost their cables to the rest. They get the
/// place of ports with the same names, if most of their ports have usual names.
fn lost(parts: &Parts<'_>, label: &impl Fn(usize) -> Option<Place>) -> BTreeMap<usize, Place> {
    let Parts { graph, nets, .. } = parts;
    let is_in_main = |port: &usize| {
        let ports = graph.host_of[*port].map(|host| graph.hosts[host].ports.iter());
        ports.is_some_and(|mut ports| {
            ports.any(|port| graph.leaf_of[*port].and_then(label).is_some())
        })
    };
    let is_lost = |leaf: &usize| {
        let (ports, net) = (&graph.ports_of[*leaf], nets.of[*leaf]);
        !ports.is_empty()
            && label(*leaf).is_none()
            && (net.is_some_and(|net| nets.is_fragment(&nets.list[net]))
                || ports.iter().filter(|port| is_in_main(port)).count() * 2 > ports.len())
    };
    let leaves: Vec<usize> = (0..graph.links.len()).filter(is_lost).collect();
    let mut known: Vec<(u32, Option<Place>)> = Vec::new();
    if !leaves.is_empty() {
        let ports = graph.leaf_of.iter().zip(&graph.key_of);
        known.extend(ports.map(|(leaf, key)| (*key, leaf.and_then(label))));
    }
    known.sort_unstable();
    let keys = known.chunk_by(|a, b| a.0 == b.0);
    let usual: BTreeMap<u32, Place> = keys
        .filter_map(|run| Some((run[0].0, mode(run.iter().map(|(_, place)| (*place, 1)))??)))
        .collect();
    let place = |leaf: usize| {
        let keys = graph.ports_of[leaf].iter().map(|port| graph.key_of[*port]);
        let place = mode(keys.map(|key| (usual.get(&key).copied(), 1))).flatten()?;
        Some((leaf, place))
    };
    leaves.into_iter().filter_map(place).collect()
}

/// By port: its subnet.
fn subnet_of(parts: &Parts<'_>) -> Vec<Option<u32>> {
    let subnet = |leaf: &Option<usize>| u32::try_from(parts.nets.subnet_of[(*leaf)?]?).ok();
    parts.graph.leaf_of.iter().map(subnet).collect()
}
