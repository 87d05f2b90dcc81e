//! A fabric as a graph. Impossible parts are removed and reported, cables between the same two
//! switches are counted, and ports are sorted by host and by switch.

use std::collections::BTreeMap;

use super::{EndPort, Fabric, Oddity};
use crate::natural::Natural;

/// The most ports of a host. With more, many hosts share a name.
const PORTS_PER_HOST_MAX: usize = 256;

/// The cables from one switch to another.
#[derive(Clone, Copy)]
pub(super) struct Link {
    /// The other switch.
    pub(super) to: usize,
    /// Number of cables.
    pub(super) cables: u32,
    /// Sum of their rates. An unknown rate counts as 1.
    pub(super) gbps: u64,
}

/// A host: its name, and its ports as indices.
pub(super) struct Host<'a> {
    pub(super) name: &'a str,
    pub(super) ports: Vec<usize>,
}

/// A fabric as a graph.
pub(super) struct Graph<'a> {
    pub(super) fabric: &'a Fabric,
    /// By switch: the other switches that it has cables to, in order. Routers have none.
    pub(super) links: Vec<Vec<Link>>,
    /// By switch: the ports of hosts on it.
    pub(super) ports_of: Vec<Vec<usize>>,
    /// By port: the switch that it is on.
    pub(super) leaf_of: Vec<Option<usize>>,
    /// By port: its host.
    pub(super) host_of: Vec<Option<usize>>,
    /// By port: a number for its device and port number, in the order of their names.
    pub(super) key_of: Vec<u32>,
    /// Hosts in the order of their names.
    pub(super) hosts: Vec<Host<'a>>,
    /// Whether two switches have one identifier, so that the graph cannot be classified.
    pub(super) is_broken: bool,
}

impl<'a> Graph<'a> {
    /// Makes the graph of `fabric`, and reports its faults.
    pub(super) fn of(fabric: &'a Fabric, oddities: &mut Vec<Oddity>) -> Self {
        let is_usable = usable(fabric, oddities);
        let is_router = |switch: usize| fabric.switches[switch].is_router;
        let leaf = |index: usize, port: &EndPort| {
            let leaf = port.attached.filter(|_| is_usable[index])?.0;
            (!is_router(leaf)).then_some(leaf)
        };
        let leaf_of: Vec<_> =
            fabric.ports.iter().enumerate().map(|(index, port)| leaf(index, port)).collect();
        let mut ports_of = vec![Vec::new(); fabric.switches.len()];
        for (port, leaf) in leaf_of.iter().enumerate() {
            leaf.iter().for_each(|leaf| ports_of[*leaf].push(port));
        }
        let hosts = hosts(fabric, &is_usable, oddities);
        let mut host_of = vec![None; fabric.ports.len()];
        for (number, host) in hosts.iter().enumerate() {
            host.ports.iter().for_each(|port| host_of[*port] = Some(number));
        }
        Self {
            fabric,
            links: links(fabric, oddities),
            ports_of,
            leaf_of,
            host_of,
            key_of: keys(fabric),
            hosts,
            is_broken: has_twins(fabric, oddities),
        }
    }

    /// The name of a switch for messages.
    pub(super) fn switch(&self, switch: usize) -> String {
        let it = &self.fabric.switches[switch];
        if it.name.is_empty() { format!("{:#x}", it.id) } else { it.name.clone() }
    }

    /// The name of a port for messages.
    pub(super) fn port(&self, port: usize) -> String {
        let EndPort { host, device, number, .. } = &self.fabric.ports[port];
        let host = if host.is_empty() { "unnamed host" } else { host };
        format!("{host} {device}:{number}")
    }

    /// The leaf switches of a host, each with the number of its ports there, in order.
    pub(super) fn leaves(&self, host: usize) -> Vec<(usize, usize)> {
        let ports = self.hosts[host].ports.iter();
        let mut leaves: Vec<_> = ports.filter_map(|port| self.leaf_of[*port]).collect();
        leaves.sort_unstable();
        leaves.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
    }
}

/// By port: whether it is usable. A port is not usable if its identifier is not unique, if its
/// switch does not exist, or if it is that of an aggregation node.
fn usable(fabric: &Fabric, oddities: &mut Vec<Oddity>) -> Vec<bool> {
    let mut by_id: Vec<usize> = (0..fabric.ports.len()).collect();
    by_id.sort_unstable_by_key(|port| fabric.ports[*port].id);
    let mut is_usable = vec![true; fabric.ports.len()];
    for twins in by_id.chunk_by(|a, b| fabric.ports[*a].id == fabric.ports[*b].id) {
        if let [first, _, ..] = twins {
            let EndPort { host, device, number, id, .. } = &fabric.ports[*first];
            let what =
                format!("{host} {device}:{number} has the identifier {id:?} of another port");
            oddities.push(Oddity { port: Some(*first), what });
            twins.iter().for_each(|port| is_usable[*port] = false);
        }
    }
    for (index, port) in fabric.ports.iter().enumerate() {
        let EndPort { host, device, number, .. } = port;
        if port.attached.is_some_and(|(switch, _)| switch >= fabric.switches.len()) {
            let what = format!("{host} {device}:{number} is on a switch that does not exist");
            oddities.push(Oddity { port: Some(index), what });
            is_usable[index] = false;
        }
        is_usable[index] &= !is_aggregation_node(port);
    }
    is_usable
}

/// Whether a port is that of a switch's aggregation node (SHARP) instead of a host.
fn is_aggregation_node(port: &EndPort) -> bool {
    let has = |text: &str| text.contains("Aggregation Node");
    has(&port.host) || has(&port.device)
}

/// Whether two switches have one identifier.
fn has_twins(fabric: &Fabric, oddities: &mut Vec<Oddity>) -> bool {
    let mut ids: Vec<u64> = fabric.switches.iter().map(|switch| switch.id).collect();
    ids.sort_unstable();
    let twin = ids.windows(2).find(|pair| pair[0] == pair[1]);
    oddities.extend(twin.map(|pair| {
        let what = format!("two switches have the identifier {:#x}", pair[0]);
        Oddity { port: None, what }
    }));
    twin.is_some()
}

/// By switch: its neighbours. Routers do not belong to a subnet, so their cables are left out.
fn links(fabric: &Fabric, oddities: &mut Vec<Oddity>) -> Vec<Vec<Link>> {
    let mut links: Vec<Vec<Link>> = vec![Vec::new(); fabric.switches.len()];
    for cable in &fabric.cables {
        let [(a, _), (b, _)] = cable.ends;
        let is_there = |switch: usize| fabric.switches.get(switch).is_some();
        if !is_there(a) || !is_there(b) {
            let what = format!("a cable joins switches {a} and {b}, which do not both exist");
            oddities.push(Oddity { port: None, what });
        } else if a == b {
            let name = &fabric.switches[a].name;
            let what = format!("a cable joins switch {name} with itself");
            oddities.push(Oddity { port: None, what });
        } else if !fabric.switches[a].is_router && !fabric.switches[b].is_router {
            let gbps = u64::from(cable.gbps.max(1));
            links[a].push(Link { to: b, cables: 1, gbps });
            links[b].push(Link { to: a, cables: 1, gbps });
        }
    }
    for links in &mut links {
        links.sort_unstable_by_key(|link| link.to);
        links.dedup_by(|next, link| {
            let is_same = next.to == link.to;
            if is_same {
                link.cables += next.cables;
                link.gbps += next.gbps;
            }
            is_same
        });
    }
    links
}

/// Hosts in the order of their names, with their usable ports.
fn hosts<'a>(fabric: &'a Fabric, usable: &[bool], oddities: &mut Vec<Oddity>) -> Vec<Host<'a>> {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, port) in fabric.ports.iter().enumerate() {
        if usable[index] && !port.host.is_empty() {
            by_name.entry(&port.host).or_default().push(index);
        }
    }
    let mut hosts: Vec<Host<'_>> =
        by_name.into_iter().map(|(name, ports)| Host { name, ports }).collect();
    hosts.retain(|host| {
        let is_one = host.ports.len() <= PORTS_PER_HOST_MAX;
        if !is_one {
            let (ports, name) = (host.ports.len(), host.name);
            let what = format!("{ports} ports have the host name {name}, too many for one host");
            oddities.push(Oddity { port: None, what });
        }
        is_one
    });
    hosts.sort_by_key(|host| Natural(host.name));
    hosts
}

/// By port: a number for its device and port number, in the order of their names.
fn keys(fabric: &Fabric) -> Vec<u32> {
    let key = |port: &'_ usize| {
        let port = &fabric.ports[*port];
        (port.device.as_str(), port.number)
    };
    let mut distinct: BTreeMap<(&str, u8), u32> = BTreeMap::new();
    fabric.ports.iter().for_each(|port| {
        distinct.insert((&port.device, port.number), 0);
    });
    let mut sorted: Vec<(&str, u8)> = distinct.keys().copied().collect();
    sorted.sort_by_key(|(device, number)| (Natural(*device), *number));
    for (number, key) in (0..).zip(sorted) {
        distinct.insert(key, number);
    }
    (0..fabric.ports.len()).map(|port| distinct[&key(&port)]).collect()
}
