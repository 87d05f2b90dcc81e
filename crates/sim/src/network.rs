//! The directed links of a fabric, and the ways between two ports.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::error;
use std::fmt;

use ringfold_topology::AggregationTree;
use ringfold_topology::fabric::Fabric;
use ringfold_types::mix;

use crate::whole::whole;

/// Gbit/s of a cable of unknown rate.
const UNKNOWN_GBPS: u32 = 100;

/// Picoseconds of a second.
pub(crate) const SECOND_PS: u64 = 1_000_000_000_000;

/// A distance that no way has.
const NO_WAY: u8 = u8::MAX;

/// The leaf switches that a tree of switches has in view when it chooses its root.
const MIDDLE_LEAVES: usize = 64;

/// The choice between shortest ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// By the receiver's port, as a subnet manager does: all ports of a leaf switch have ways of
    /// their own while there are enough.
    #[default]
    ByDestination,
    /// By a hash of both ports and this seed, as switches of Ethernet do (ECMP).
    Ecmp(u64),
    /// By the number of messages on each link, when the message leaves.
    Adaptive,
}

/// A direction of a cable.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name: from where to where.
    pub name: String,
    /// The levels of its ends: 0 for a host, and for a switch the switches on the way from the
    /// nearest host.
    pub levels: [usize; 2],
    /// Bytes per second; 0 if it failed.
    pub(crate) rate: u64,
}

/// The links of a fabric. Ports are named by their index in it.
#[derive(Clone, Debug)]
pub struct Network {
    links: Vec<Link>,
    /// By switch: the other ends of its links, and the links, in the order of cables.
    out: Vec<Vec<(usize, usize)>>,
    ports: Vec<Port>,
    /// By name of a cable: the links of both directions.
    cables: HashMap<String, [usize; 2]>,
    /// By leaf switch: the cables from each switch to it.
    distances: HashMap<usize, Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    leaf: Option<usize>,
    up: usize,
    down: usize,
    /// Its number among all ports, leaf switch by leaf switch.
    number: usize,
}

/// A tree of switches over some ports. It has a joint where several of their ways meet.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// By joint: the next one on the way to the root, and the links to it. The root has none.
    pub(crate) joints: Vec<Option<(usize, Vec<usize>)>>,
    /// By port: the first joint on its way, and the links to it.
    pub(crate) ports: Vec<(usize, Vec<usize>)>,
}

impl Tree {
    /// The tree as one of aggregators, whose members are the ports.
    pub(crate) fn of_members(&self) -> AggregationTree {
        let mut below = vec![Vec::new(); self.joints.len()];
        for (member, (joint, _)) in self.ports.iter().enumerate() {
            below[*joint].push(AggregationTree::Member(member));
        }
        let above = |joint: &usize| self.joints[*joint].as_ref().map(|(above, _)| *above);
        let depth = |joint: &usize| std::iter::successors(Some(*joint), above).count();
        let mut order: Vec<usize> = (0..self.joints.len()).collect();
        order.sort_by_key(|joint| Reverse(depth(joint)));
        let mut root = AggregationTree::Node(Vec::new());
        for joint in order {
            root = AggregationTree::Node(std::mem::take(&mut below[joint]));
            above(&joint).into_iter().for_each(|above| below[above].push(root.clone()));
        }
        root
    }
}

/// A name that no cable of a network has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLink(String);

impl fmt::Display for UnknownLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "no cable {name}; cables have names as in leaf3.0 (the first cable of leaf3 to "
        )?;
        f.write_str("other switches) and host5.0 (the first port of host5)")
    }
}

impl error::Error for UnknownLink {}

impl Network {
    /// The links of a fabric. Cables to switches that do not exist are left out.
    #[must_use]
    pub fn of(fabric: &Fabric) -> Self {
        let switches = fabric.switches.len();
        let mut network = Self {
            links: Vec::new(),
            out: vec![Vec::new(); switches],
            ports: Vec::with_capacity(fabric.ports.len()),
            cables: HashMap::new(),
            distances: HashMap::new(),
        };
        let levels = levels(fabric);
        let name = |switch: usize| match &fabric.switches[switch] {
            it if it.name.is_empty() => format!("{:#x}", it.id),
            it => it.name.clone(),
        };
        let mut used = vec![0; switches];
        for cable in &fabric.cables {
            let [(from, _), (to, _)] = cable.ends;
            if from.max(to) >= switches || from == to {
                continue;
            }
            let cabled = format!("{}.{}", name(from), used[from]);
            used[from] += 1;
            let ends = [levels[from], levels[to]];
            let [up, down] = network.cable([&cabled, &name(to)], ends, cable.gbps);
            network.out[from].push((to, up));
            network.out[to].push((from, down));
        }
        let mut of_host: HashMap<&str, usize> = HashMap::new();
        for port in &fabric.ports {
            let number = of_host.entry(&port.host).or_insert(0);
            let cabled = format!("{}.{number}", port.host);
            *number += 1;
            let leaf = port.attached.map(|(leaf, _)| leaf).filter(|leaf| *leaf < switches);
            let beyond = leaf.map_or_else(|| "nowhere".to_owned(), name);
            let [up, down] = network.cable([&cabled, &beyond], [0, 1], port.gbps);
            network.ports.push(Port { leaf, up, down, number: 0 });
        }
        let mut order: Vec<usize> = (0..network.ports.len()).collect();
        order.sort_by_key(|port| (network.ports[*port].leaf, *port));
        for (number, port) in order.into_iter().enumerate() {
            network.ports[port].number = number;
        }
        network
    }

    fn cable(&mut self, [name, beyond]: [&str; 2], ends: [usize; 2], gbps: u32) -> [usize; 2] {
        let rate = u64::from(if gbps == 0 { UNKNOWN_GBPS } else { gbps }) * 1_000_000_000 / 8;
        let at = self.links.len();
        let [from, to] = ends;
        self.links.push(Link { name: format!("{name} to {beyond}"), levels: [from, to], rate });
        self.links.push(Link { name: format!("{beyond} to {name}"), levels: [to, from], rate });
        self.cables.insert(name.to_owned(), [at, at + 1]);
        [at, at + 1]
    }

    /// Gives a cable this part of its rate, in both directions; 0 if it failed.
    ///
    /// # Errors
    /// No cable has this name.
    pub fn slow(&mut self, name: &str, part: f64) -> Result<(), UnknownLink> {
        let both = self.cables.get(name).ok_or_else(|| UnknownLink(name.to_owned()))?;
        for link in both {
            let rate = &mut self.links[*link].rate;
            *rate = whole(*rate as f64 * part.clamp(0.0, 1.0));
        }
        if self.links[both[0]].rate == 0 {
            self.out.iter_mut().for_each(|out| out.retain(|(_, link)| !both.contains(link)));
        }
        self.distances.clear();
        Ok(())
    }

    /// Makes each byte take at least so many picoseconds through a port, in each direction.
    pub(crate) fn limit_ports(&mut self, byte_ps: u64) {
        let most = SECOND_PS / byte_ps.max(1);
        for link in self.ports.iter().flat_map(|port| [port.up, port.down]) {
            self.links[link].rate = self.links[link].rate.min(most);
        }
    }

    /// Both directions of all cables, in the order of the fabric.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The port of this name, as in host5.2.
    pub(crate) fn port(&self, name: &str) -> Result<usize, UnknownLink> {
        let found = self.cables.get(name).map(|[up, _]| *up);
        let found = found.and_then(|up| self.ports.iter().position(|port| port.up == up));
        found.ok_or_else(|| UnknownLink(name.to_owned()))
    }

    /// Whether a way joins two ports.
    pub(crate) fn joins(&mut self, ports: [usize; 2]) -> bool {
        self.way(ports, Routing::default(), |_| 0).is_some()
    }

    /// The links from one port to another. `load` is the number of messages on a link. `None`
    /// without a way.
    pub(crate) fn way(
        &mut self,
        [from, to]: [usize; 2],
        routing: Routing,
        load: impl Fn(usize) -> usize,
    ) -> Option<Vec<usize>> {
        let [first, last] = [self.ports[from], self.ports[to]];
        let (mut at, end) = (first.leaf?, last.leaf?);
        if self.links[first.up].rate == 0 || self.links[last.down].rate == 0 {
            return None;
        }
        let mut way = vec![first.up];
        let mut left = last.number;
        self.measure(end);
        let distances = &self.distances[&end];
        if distances[at] == NO_WAY {
            return None;
        }
        while at != end {
            let nearer = |(next, _): &&(usize, usize)| distances[*next] < distances[at];
            let next: Vec<_> = self.out[at].iter().filter(nearer).copied().collect();
            let chosen = match routing {
                Routing::ByDestination => left % next.len(),
                Routing::Ecmp(seed) => {
                    let ports = (from as u64) << 32 | to as u64;
                    let spread = mix(mix(seed ^ ports) ^ at as u64) % next.len() as u64;
                    usize::try_from(spread).unwrap_or(0)
                }
                Routing::Adaptive => {
                    // Of equal ones, the first from the one on which a subnet manager insists.
                    let turned = |place: usize| (left + place) % next.len();
                    let by_load = |place: &usize| load(next[*place].1);
                    (0..next.len()).map(turned).min_by_key(by_load).unwrap_or(0)
                }
            };
            left /= next.len();
            way.push(next[chosen].1);
            at = next[chosen].0;
        }
        way.push(last.down);
        Some(way)
    }

    /// The tree of the ways from these ports to a switch in their middle. Of equal switches and
    /// ways, it takes those of this number. `None` without a way.
    pub(crate) fn tree(&mut self, ports: &[usize], number: usize) -> Option<Tree> {
        let is_up = |port: &&usize| self.links[self.ports[**port].up].rate > 0;
        let leaves = ports.iter().map(|it| self.ports[*Some(it).filter(is_up)?].leaf);
        let leaves: Vec<usize> = leaves.collect::<Option<_>>()?;
        let root = self.middle(&leaves, number)?;
        self.measure(root);
        let distances = &self.distances[&root];
        // By switch: the link on its way, and the number of ports and switches right below it.
        let (mut next, mut below) = (HashMap::new(), BTreeMap::from([(root, 0)]));
        for mut at in leaves.iter().copied() {
            *below.entry(at).or_insert(0) += 1;
            while at != root && !next.contains_key(&at) {
                let nearer = |(next, _): &&(usize, usize)| distances[*next] < distances[at];
                let nearer: Vec<_> = self.out[at].iter().filter(nearer).copied().collect();
                let chosen = *nearer.get(number % nearer.len().max(1))?;
                next.insert(at, chosen);
                at = chosen.0;
                *below.entry(at).or_insert(0) += 1;
            }
        }
        let is_joint = |(switch, below): &(&usize, &usize)| **switch == root || **below > 1;
        let switches: Vec<usize> = below.iter().filter(is_joint).map(|(it, _)| *it).collect();
        let way = |mut at: usize, mut links: Vec<usize>| loop {
            match switches.binary_search(&at) {
                Ok(joint) => break (joint, links),
                Err(_) => {
                    links.push(next[&at].1);
                    at = next[&at].0;
                }
            }
        };
        let above = |switch| next.get(switch).map(|(switch, link)| way(*switch, vec![*link]));
        let joints = switches.iter().map(above).collect();
        let ways =
            ports.iter().zip(&leaves).map(|(port, leaf)| way(*leaf, vec![self.ports[*port].up]));
        Some(Tree { joints, ports: ways.collect() })
    }

    /// The switch whose farthest one of these, or of a part of them, is nearest. `number` chooses
    /// one of several.
    fn middle(&mut self, leaves: &[usize], number: usize) -> Option<usize> {
        let mut some: Vec<usize> = leaves.to_vec();
        some.sort_unstable();
        some.dedup();
        let step = some.len().div_ceil(MIDDLE_LEAVES).max(1);
        let mut far = vec![(0, 0); self.out.len()];
        for leaf in some.into_iter().step_by(step) {
            self.measure(leaf);
            for ((most, sum), distance) in far.iter_mut().zip(&self.distances[&leaf]) {
                *most = (*distance).max(*most);
                *sum += usize::from(*distance);
            }
        }
        let least = far.iter().min().copied().filter(|(most, _)| *most != NO_WAY)?;
        let middles: Vec<usize> = (0..far.len()).filter(|at| far[*at] == least).collect();
        Some(middles[number % middles.len()])
    }

    /// Finds the distances to a switch.
    fn measure(&mut self, end: usize) {
        if self.distances.contains_key(&end) {
            return;
        }
        let mut distances = vec![NO_WAY; self.out.len()];
        distances[end] = 0;
        let (mut reached, mut distance) = (vec![end], 0);
        // Cables have two directions, so the way back is as long.
        while !reached.is_empty() && distance + 1 < NO_WAY {
            distance += 1;
            let mut next = Vec::new();
            for (other, _) in reached.iter().flat_map(|switch| &self.out[*switch]) {
                if distances[*other] == NO_WAY {
                    distances[*other] = distance;
                    next.push(*other);
                }
            }
            reached = next;
        }
        self.distances.insert(end, distances);
    }
}

/// By switch: its level. Those that no cable joins to a host have the last one.
fn levels(fabric: &Fabric) -> Vec<usize> {
    let mut levels = vec![usize::MAX; fabric.switches.len()];
    for (leaf, _) in fabric.ports.iter().filter_map(|port| port.attached) {
        levels.get_mut(leaf).into_iter().for_each(|level| *level = 1);
    }
    for level in 1.. {
        let mut above = Vec::new();
        for [(one, _), (other, _)] in fabric.cables.iter().map(|cable| cable.ends) {
            for (from, to) in [(one, other), (other, one)] {
                if levels.get(from) == Some(&level) && levels.get(to) == Some(&usize::MAX) {
                    above.push(to);
                }
            }
        }
        if above.is_empty() {
            break;
        }
        above.into_iter().for_each(|switch| levels[switch] = level + 1);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    fn network(text: &str) -> Network {
        Network::of(&text.parse::<Shape>().unwrap().fabric())
    }

    fn names(network: &mut Network, ports: [usize; 2], routing: Routing) -> Vec<String> {
        let way = network.way(ports, routing, |_| 0).unwrap();
        way.iter().map(|link| network.links[*link].name.clone()).collect()
    }

    #[test]
    fn a_way_goes_up_and_down() {
        let mut network = network("fat:16x1:100G:radix=8");
        let near = names(&mut network, [0, 1], Routing::ByDestination);
        assert_eq!(near, ["host0.0 to leaf0", "leaf0 to host1.0"]);
        let far = names(&mut network, [0, 6], Routing::ByDestination);
        let wanted =
            ["host0.0 to leaf0", "leaf0.2 to spine2", "spine2 to leaf1.2", "leaf1 to host6.0"];
        assert_eq!(far, wanted);
    }

    /// All hosts of a leaf switch send to one host each of another: no two use the same cable.
    #[test]
    fn ways_by_destination_do_not_meet() {
        let mut network = network("fat:64x1:100G:radix=8");
        for shift in 1..64 {
            let mut used = HashMap::new();
            for from in 0..64 {
                let to = (from + shift) % 64;
                for link in network.way([from, to], Routing::ByDestination, |_| 0).unwrap() {
                    *used.entry(link).or_insert(0) += 1;
                }
            }
            assert!(used.values().all(|count| *count == 1), "{shift}: {used:?}");
        }
    }

    #[test]
    fn a_failed_cable_is_gone_round() {
        let mut network = network("fat:16x1:100G:radix=8");
        network.slow("leaf0.2", 0.0).unwrap();
        for routing in [Routing::ByDestination, Routing::Ecmp(3), Routing::Adaptive] {
            for to in 4..16 {
                let way = names(&mut network, [0, to], routing);
                assert!(way.len() == 4 && !way[1].starts_with("leaf0.2"), "{way:?}");
            }
        }
        assert!(network.slow("leaf9.0", 0.5).unwrap_err().to_string().contains("leaf9.0"));
        network.slow("host0.0", 0.0).unwrap();
        assert_eq!(network.way([0, 1], Routing::ByDestination, |_| 0), None);
    }

    #[test]
    fn links_join_levels() {
        let network = network("fat:64x1:100G:radix=8");
        let joins = |ends: &str| {
            let (from, to) = ends.split_once(' ').unwrap();
            let all = network.links().iter().filter(|it| it.name.starts_with(from));
            let found = all.filter(|it| it.name.contains(&format!("to {to}")));
            found.map(|it| it.levels).collect::<Vec<_>>()
        };
        assert_eq!(joins("host leaf"), [[0, 1]; 64]);
        assert_eq!(joins("leaf spine"), [[1, 2]; 64]);
        assert_eq!(joins("core spine"), [[3, 2]; 64]);
        assert_eq!(joins("leaf host"), [[1, 0]; 64]);
    }

    #[test]
    fn rails_of_their_own_have_no_way_between() {
        let mut network = network("rail-only:8x2:100G:radix=8");
        assert!(network.way([0, 2], Routing::ByDestination, |_| 0).is_some());
        assert_eq!(network.way([0, 1], Routing::ByDestination, |_| 0), None);
    }
}
