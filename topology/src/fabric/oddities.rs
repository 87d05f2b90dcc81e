//! Exceptions from the rest of a fabric, compared with the majority.

use std::collections::BTreeMap;

use super::Oddity;
use super::graph::Graph;
use super::groups::Groups;
use super::levels::Levels;
use super::net::Role;
use super::nets::Nets;
use super::rails::Rails;
use super::sets::mode;

/// The most identifiers for ports and switches in an InfiniBand subnet.
const UNICAST_LIDS: usize = 49_151;

/// The parts of a fabric, as found so far.
pub(super) struct Parts<'a> {
    pub(super) graph: &'a Graph<'a>,
    pub(super) levels: &'a Levels,
    pub(super) groups: &'a Groups,
    pub(super) nets: &'a Nets,
    pub(super) rails: &'a Rails,
}

/// Finds exceptions.
pub(super) fn find(parts: &Parts<'_>) -> Vec<Oddity> {
    let mut found = switches(parts);
    found.extend(unattached(parts.graph));
    found.extend(slower(parts));
    found.extend(misplaced(parts));
    found.extend(missing(parts));
    found
}

/// Subnets with more ports and switches than possible.
pub(super) fn too_large(graph: &Graph<'_>, nets: &Nets) -> Vec<Oddity> {
    let mut counts = vec![0; nets.subnets];
    let members = nets.subnet_of.iter().enumerate();
    let guids = |switch: usize| {
        let ports = graph.ports_of[switch].iter().map(|port| graph.fabric.ports[*port].id);
        ports.filter(|id| matches!(id, super::PortId::Guid(_))).count()
    };
    let mut has_guids = vec![false; nets.subnets];
    for (switch, subnet) in members.filter_map(|(switch, subnet)| Some((switch, (*subnet)?))) {
        counts[subnet] += 1 + guids(switch);
        has_guids[subnet] |= guids(switch) > 0;
    }
    let large = counts.iter().zip(has_guids).filter(|(count, is)| *is && **count > UNICAST_LIDS);
    large
        .map(|(count, _)| Oddity {
            port: None,
            what: format!(
                "a subnet has {count} ports and switches, more than the {UNICAST_LIDS} that \
                 InfiniBand allows"
            ),
        })
        .collect()
}

/// Switches without use, separated switches, and cables between switches that do not fit.
fn switches(parts: &Parts<'_>) -> Vec<Oddity> {
    let Parts { graph, levels, nets, .. } = parts;
    let mut found = Vec::new();
    let mut add = |what: String| found.push(Oddity { port: None, what });
    for (switch, it) in graph.fabric.switches.iter().enumerate() {
        let name = || graph.switch(switch);
        if !it.is_router && levels.of[switch] == 0 {
            add(format!("switch {} carries nothing between hosts", name()));
        }
        if nets.of[switch].is_some_and(|net| nets.list[net].role == Role::Fragment) {
            add(format!("switch {} has no cable to the rest of its network", name()));
        }
    }
    for (a, b) in &levels.misfits {
        let (a, b) = (graph.switch(*a), graph.switch(*b));
        add(format!("the cable between switches {a} and {b} does not fit the others"));
    }
    found
}

/// Ports without a switch, if most ports with their name have one.
fn unattached(graph: &Graph<'_>) -> Vec<Oddity> {
    let count = graph.key_of.iter().max().map_or(0, |last| *last as usize + 1);
    let mut attached = vec![(0_usize, 0_usize); count];
    for (port, key) in graph.key_of.iter().enumerate() {
        let (all, up) = &mut attached[*key as usize];
        *all += 1;
        *up += usize::from(graph.leaf_of[port].is_some());
    }
    let is_odd = |port: &usize| {
        let (all, up) = attached[graph.key_of[*port] as usize];
        graph.fabric.ports[*port].attached.is_none() && up * 2 > all
    };
    let odd = (0..graph.key_of.len()).filter(is_odd);
    odd.map(|port| Oddity {
        port: Some(port),
        what: format!("{} is down or has no cable to a switch", graph.port(port)),
    })
    .collect()
}

/// Ports that are slower than most in the same role.
fn slower(parts: &Parts<'_>) -> Vec<Oddity> {
    let Parts { graph, nets, .. } = parts;
    let stack = |port: usize| Some(nets.list[nets.of[graph.leaf_of[port]?]?].stack);
    let rate = |port: usize| graph.fabric.ports[port].gbps;
    let ports = 0..graph.fabric.ports.len();
    let known: Vec<(usize, usize)> = ports
        .filter(|port| rate(*port) > 0)
        .filter_map(|port| Some((stack(port)?, port)))
        .collect();
    let mut rates = vec![Vec::new(); nets.stacks.len()];
    known.iter().for_each(|(stack, port)| rates[*stack].push((rate(*port), 1)));
    let usual: Vec<u32> = rates.into_iter().map(|rates| mode(rates).unwrap_or(0)).collect();
    let slow = known.into_iter().filter(|(stack, port)| rate(*port) < usual[*stack]);
    slow.map(|(stack, port)| Oddity {
        port: Some(port),
        what: format!(
            "{} has {} Gbit/s where most have {}",
            graph.port(port),
            rate(port),
            usual[stack]
        ),
    })
    .collect()
}

/// By leaf switch: the number of ports there that a host of its group usually has.
fn usual_ports(parts: &Parts<'_>) -> Vec<usize> {
    let mut counts = vec![Vec::new(); parts.graph.links.len()];
    for host in (0..parts.graph.hosts.len()).filter(|host| parts.groups.is_typical[*host]) {
        for (leaf, ports) in parts.graph.leaves(host) {
            if parts.groups.of[leaf] == parts.groups.home[host] {
                counts[leaf].push((ports, 1));
            }
        }
    }
    counts.into_iter().map(|counts| mode(counts).unwrap_or(0)).collect()
}

/// Ports on a leaf switch of another group, and surplus ports of a host on its leaf switch.
fn misplaced(parts: &Parts<'_>) -> Vec<Oddity> {
    let Parts { graph, groups, rails, .. } = parts;
    let usual = usual_ports(parts);
    // By leaf switch and device name, number of ports.
    let mut named: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    for (port, leaf) in graph.leaf_of.iter().enumerate() {
        leaf.iter().for_each(|leaf| *named.entry((*leaf, graph.key_of[port])).or_default() += 1);
    }
    let mut found = Vec::new();
    let mut add = |port: usize, leaf: usize, why: &str| {
        let rail = rails.of[leaf].filter(|_| rails.count > 0);
        let rail = rail.map_or_else(String::new, |(rail, _)| format!(", rail {rail}"));
        let what = format!("{} is on switch {}{rail}, {why}", graph.port(port), graph.switch(leaf));
        found.push(Oddity { port: Some(port), what });
    };
    for host in (0..graph.hosts.len()).filter(|host| groups.is_typical[*host]) {
        let mut on: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for port in &graph.hosts[host].ports {
            graph.leaf_of[*port].iter().for_each(|leaf| on.entry(*leaf).or_default().push(*port));
        }
        for (leaf, mut ports) in on {
            if !is_main(parts, leaf) {
                continue;
            }
            if groups.of[leaf] != groups.home[host] {
                let why = "and most ports of its host are in another leaf group";
                ports.iter().for_each(|port| add(*port, leaf, why));
            } else if ports.len() > usual[leaf] && rails.count > 0 {
                let votes = |port: &usize| named[&(leaf, graph.key_of[*port])];
                ports.sort_by_key(|port| std::cmp::Reverse(votes(port)));
                let why = "with more ports of its host than of others";
                ports[usual[leaf]..].iter().for_each(|port| add(*port, leaf, why));
            }
        }
    }
    found
}

/// Whether a leaf switch belongs to the fabric.
fn is_main(parts: &Parts<'_>, leaf: usize) -> bool {
    parts.nets.of[leaf].is_some_and(|net| parts.nets.plane(net).is_some())
}

/// Hosts that lack a port on a leaf switch of their group.
fn missing(parts: &Parts<'_>) -> Vec<Oddity> {
    let Parts { graph, groups, rails, .. } = parts;
    let usual = usual_ports(parts);
    let mut leaves_of = vec![Vec::new(); groups.count];
    for leaf in (0..usual.len()).filter(|leaf| is_main(parts, *leaf) && usual[*leaf] > 0) {
        groups.of[leaf].iter().for_each(|group| leaves_of[*group].push(leaf));
    }
    let mut found = Vec::new();
    for host in (0..graph.hosts.len()).filter(|host| groups.is_typical[*host]) {
        let Some(home) = groups.home[host] else { continue };
        let has = graph.leaves(host);
        for leaf in &leaves_of[home] {
            let here = has.binary_search_by_key(leaf, |(leaf, _)| *leaf);
            let here = here.map_or(0, |index| has[index].1);
            if here < usual[*leaf] {
                let rail = rails.of[*leaf].filter(|_| rails.count > 0);
                let rail = rail.map_or_else(String::new, |(rail, _)| format!(", rail {rail}"));
                let (name, switch) = (graph.hosts[host].name, graph.switch(*leaf));
                let what = format!(
                    "{name} has {here} ports on switch {switch}{rail} where most hosts have {}",
                    usual[*leaf]
                );
                found.push(Oddity { port: None, what });
            }
        }
    }
    found
}
